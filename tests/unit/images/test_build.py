"""`kubernetes/images/build`, with engines that build nothing and record their arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

DOCKER = """\
#!/bin/sh
[ "$1" = save ] && touch "$3"
echo "$@" >>"$DOCKER_LOG"
exit "${DOCKER_STATUS:-0}"
"""

BUILDAH = """\
#!/bin/sh
case "$*" in
    *"--target executor-cpu"*) echo started >"$GATE"; read -r line <"$GATE" ;;
    *oci-archive:*) archive=${*##*oci-archive:}; touch "${archive%%:*}" ;;
esac
"""
"""Has every image. The build of `executor-cpu` waits until a line is written to the named pipe."""


class Clone:
    """A clone of the files that images are built from, and a home directory."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "clone"
        self._log = directory / "docker.log"
        self._cache = directory / "cache"
        self._programs = directory / "bin"
        shutil.copytree(ROOT / "kubernetes/images", self.root / "kubernetes/images")
        for name in ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "pyproject.toml"):
            (self.root / name).touch()
        for name in (
            "requirements",
            "cornserve",
            "executors",
            "plan",
            "planner",
            "policies",
            "tasklib",
            "examples/echo",
        ):
            (self.root / name).mkdir(parents=True)
        for name in ("build", "control", "executor-cpu", "executor-gpu"):
            (self.root / f"requirements/{name}.txt").touch()
        self._programs.mkdir()
        self.write_engine(DOCKER)

    def write_engine(self, script: str, name: str = "docker") -> None:
        (self._programs / name).write_text(script)
        (self._programs / name).chmod(0o755)

    def build(self, *names: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.root / "kubernetes/images/build", *names],
            env={
                "PATH": f"{self._programs}:{os.environ['PATH']}",
                "HOME": str(self._cache),
                "XDG_CACHE_HOME": str(self._cache),
                "DOCKER_LOG": str(self._log),
                "GIT_CEILING_DIRECTORIES": str(self.root.parent),
            }
            | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def archives(self, *names: str) -> list[Path]:
        """Builds images and returns their archives."""
        result = self.build(*names)
        assert result.returncode == 0, result.stderr
        return [Path(line) for line in result.stdout.splitlines()]

    def builds(self) -> list[str]:
        """Returns the arguments of the builds since the last call."""
        calls = self._log.read_text().splitlines()
        self._log.write_text("")
        return [call for call in calls if call.startswith("build ")]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_an_image_is_built_once_and_again_after_a_change(clone: Clone) -> None:
    (first,) = clone.archives("control")
    (build,) = clone.builds()
    (again,) = clone.archives("control")

    assert "--target control" in build
    assert again == first
    assert first.is_file()
    assert clone.builds() == []

    (clone.root / "cornserve/new.py").write_text("x = 1\n")
    (changed,) = clone.archives("control")

    assert changed != first
    assert len(clone.builds()) == 1


def test_the_base_image_can_be_chosen(clone: Clone) -> None:
    (first,) = clone.archives("control")
    clone.builds()

    result = clone.build("control", BASE="python:3.12-slim")

    assert "BASE=python:3.12-slim" in clone.builds()[0]
    assert result.stdout.strip() != str(first)


@pytest.mark.parametrize(
    ("file", "rebuilt"),
    [
        ("cornserve/new.py", ["control", "executor-cpu", "echo"]),
        ("requirements/executor-cpu.txt", ["executor-cpu"]),
        ("examples/echo/pyproject.toml", ["echo"]),
        ("cornserve/__pycache__/new.pyc", []),
        ("docs/new.md", []),
    ],
)
def test_a_change_rebuilds_only_the_images_that_it_affects(clone: Clone, file: str, rebuilt: list[str]) -> None:
    names = ["control", "executor-cpu", "echo"]
    before = clone.archives(*names)

    (clone.root / file).parent.mkdir(parents=True, exist_ok=True)
    (clone.root / file).write_text("a change\n")
    after = clone.archives(*names)

    assert [name for name, old, new in zip(names, before, after, strict=True) if old != new] == rebuilt


def test_the_echo_image_is_derived_from_the_control_image_of_the_same_files(clone: Clone) -> None:
    (clone.root / "cornserve/new.py").write_text("x = 1\n")

    (archive,) = clone.archives("echo")
    control, echo = clone.builds()

    image = control.split("--tag ")[1].split()[0]
    assert image.startswith("localhost/cornserve-control:")
    assert f"CORNSERVE={image}" in echo
    assert archive.name.startswith("echo-")


def test_the_last_archives_of_an_image_are_kept(clone: Clone) -> None:
    archives = []
    for content in range(5):
        (clone.root / "cornserve/new.py").write_text(str(content))
        (archive,) = clone.archives("control")
        os.utime(archive, (content, content))
        archives.append(archive)

    assert [archive.exists() for archive in archives] == [False, False, True, True, True]


def test_a_failed_build_leaves_no_archive(clone: Clone) -> None:
    clone.write_engine('#!/bin/sh\n[ "$1" = info ] && exit 0\n[ "$1" = save ] && touch "$3"\nexit 1\n')
    failed = clone.build("control")
    clone.write_engine(DOCKER)
    clone.archives("control")

    assert failed.returncode != 0
    assert failed.stdout == ""
    assert len(clone.builds()) == 1


def test_the_build_of_one_image_does_not_wait_for_that_of_another(clone: Clone, tmp_path: Path) -> None:
    for engine in ("docker", "podman"):
        clone.write_engine("#!/bin/sh\nexit 1\n", engine)
    clone.write_engine(BUILDAH, "buildah")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with ThreadPoolExecutor() as threads:
        executor = threads.submit(clone.build, "executor-cpu", GATE=str(gate))
        assert gate.read_text() == "started\n"
        try:
            (control,) = clone.archives("control")
        finally:
            gate.write_text("go on\n")

    assert control.is_file()
    assert executor.result().returncode == 0, executor.result().stderr


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "usage: kubernetes/images/build NAME …"),
        (["gateway"], "unknown image 'gateway': use control, echo, executor-cpu or executor-gpu."),
    ],
)
def test_a_wrong_name_is_refused(clone: Clone, names: list[str], message: str) -> None:
    result = clone.build(*names)

    assert result.returncode != 0
    assert message in result.stderr
    assert result.stdout == ""
