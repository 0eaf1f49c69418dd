"""The Dockerfiles and what they copy from the checkout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cornserve

ROOT = Path(__file__).parents[3]
ECHO = ROOT / "examples" / "echo"
TARGETS = ("control", "executor-cpu", "executor-gpu")


def instructions(dockerfile: Path) -> list[str]:
    """Returns the instructions, each in one line."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    return [re.sub(r"\s+", " ", line) for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


def stages() -> dict[str, list[str]]:
    """Returns the instructions of each stage by its name."""
    found: list[list[str]] = []
    for instruction in instructions(ROOT / "Dockerfile"):
        if instruction.startswith("FROM "):
            found.append([])
        if found:
            found[-1].append(instruction)
    return {stage[0].split()[3]: stage for stage in found}


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_labeled_and_its_processes_are_not_root(target: str) -> None:
    stage = stages()[target]
    text = "\n".join([*stages()["runtime"], *stage])

    assert stage[0] == f"FROM runtime AS {target}"
    assert stage[-1] == "USER 10001:10001"
    assert f'org.opencontainers.image.title="cornserve-{target}"' in text
    assert f'org.opencontainers.image.version="{cornserve.__version__}"' in text
    for label in ("description", "licenses", "revision", "vendor"):
        assert f"org.opencontainers.image.{label}=" in text, label


@pytest.mark.parametrize("target", TARGETS)
def test_layers_are_ordered_by_how_often_they_change(target: str) -> None:
    stage = stages()[target]
    layers = [line for line in stage if line.startswith(("RUN", "COPY"))]

    assert [line.split()[1] for line in layers[:-3]] in ([], ["apt-get"])  # system packages
    assert layers[-3] == f"COPY requirements/{target}.txt /opt/cornserve/requirements.txt"
    assert layers[-2].endswith("/opt/build/bin/install-packages")
    assert layers[-1] == "COPY --from=project /opt/project /opt/cornserve"
    assert stage.index(layers[-1]) < stage.index("ARG REVISION=unknown")


@pytest.mark.parametrize("directory", [ROOT, ECHO], ids=["cornserve", "echo"])
def test_the_builder_gets_exactly_the_files_that_it_copies(directory: Path) -> None:
    first, *rest = [
        line for line in (directory / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    sent = {line.removeprefix("!") for line in rest if line.startswith("!")}
    copied = {
        path.rstrip("/")
        for line in instructions(directory / "Dockerfile")
        if line.startswith("COPY") and "--from=" not in line
        for path in line.split()[1:-1]
        if not path.startswith("--")
    }

    assert first == "*", "new files must not be sent by default: tests, caches and .git can be large or secret"
    assert copied - {path for path in copied if path.startswith("requirements/")} == sent - {"requirements"}
    assert {line for line in rest if not line.startswith("!")} == {"**/__pycache__", "**/*.pyc"}
    assert [path for path in copied if not (directory / path).exists()] == []


@pytest.mark.parametrize("directory", [ROOT, ECHO], ids=["cornserve", "echo"])
def test_base_images_can_be_replaced(directory: Path) -> None:
    lines = [line.split() for line in instructions(directory / "Dockerfile") if line.startswith("FROM")]
    named = {line[3] for line in lines if len(line) > 2}

    assert {line[1] for line in lines} - named == ({"${BASE}"} if directory == ROOT else {"${CORNSERVE}"})
