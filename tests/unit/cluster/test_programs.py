"""The programs of the cluster for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cluster.programs import main, program


@pytest.fixture(autouse=True)
def nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("scripts.cluster.programs.LINKS", tmp_path / "links")
    monkeypatch.delenv("CI", raising=False)


def install_go(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Makes a shell script the only Go."""
    directory.mkdir()
    (directory / "go").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_a_program_is_built_once_and_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = tmp_path / "builds"
    install_go(
        tmp_path / "go", monkeypatch, f'echo . >> {builds}; while [ "$1" != -o ]; do shift; done; echo built > $2'
    )

    main(["kube"])
    main(["kube"])

    assert program("kubectl").read_text() == "built\n"
    assert (tmp_path / "links" / "kube-apiserver").read_text() == "built\n"
    assert builds.read_text() == ".\n"


def test_a_failed_build_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(tmp_path / "go", monkeypatch, "exit 1")

    with pytest.raises(SystemExit, match="1"):
        main(["kube"])

    with pytest.raises(Exception, match=r"kubectl is not built. Run `make programs`"):
        program("kubectl")


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("1", 1)])
def test_only_ci_fails_without_go(
    ci: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SystemExit, match=str(status)):
        main(["kube"])

    assert "cannot build kube: Go is missing" in capsys.readouterr().err
