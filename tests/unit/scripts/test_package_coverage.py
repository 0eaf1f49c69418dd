"""The coverage of each package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.package_coverage import by_package, lost_lines, measured_files, table

MODULE = """\
def sign(number):
    if number < 0:
        return -1
    return 1
"""
FORKING = """\
import os
from package.module import sign
if os.fork() == 0:
    sign(-1)
    os._exit(0)
os.wait()
"""
CONFIGURATION = """\
[run]
branch = true
parallel = true
relative_files = true
source_pkgs = package
patch = _exit, fork, subprocess
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/module.py").write_text(MODULE)
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / ".coveragerc").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scripts.package_coverage.CONFIGURATION", tmp_path / ".coveragerc")
    return tmp_path


def measure(project: Path, program: str, data: str) -> Path:
    (project / "program.py").write_text(program)
    command = [sys.executable, "-m", "coverage", "run", f"--data-file={project / data}", "program.py"]
    subprocess.run(command, cwd=project, check=True)
    return project / data


def test_lines_and_branches_of_forked_processes_count(project: Path) -> None:
    files = measured_files(measure(project, FORKING, "data"))

    assert list(table(by_package(files)))[1].split() == ["package", "4", "75.0%", "2", "50.0%"]


def test_lines_that_only_the_earlier_run_reached_are_listed(project: Path) -> None:
    before = measured_files(measure(project, FORKING, "before"))
    after = measured_files(measure(project, "from package.module import sign; sign(1)", "after"))

    assert lost_lines(before, after) == {"package/module.py": [3]}
    assert lost_lines(after, before) == {"package/module.py": [4]}
