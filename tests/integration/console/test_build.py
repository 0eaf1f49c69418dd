"""The committed files of the console."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import require_program

ROOT = Path(__file__).parents[3]
SOURCES, BUILT = ROOT / "console", ROOT / "cornserve/gateway/console/static"

MAX_BYTES = 400_000
"""The maximum size of the page and all its files, compressed."""


def test_the_page_is_small() -> None:
    sizes = [len(gzip.compress(file.read_bytes())) for file in BUILT.rglob("*") if file.is_file()]

    assert 0 < sum(sizes) < MAX_BYTES


def test_the_locked_packages_name_no_registry() -> None:
    assert '"resolved"' not in (SOURCES / "package-lock.json").read_text()


@pytest.mark.slow
def test_the_sources_have_no_errors_and_build_the_committed_files(tmp_path: Path) -> None:
    npm = require_program("npm")
    console = tmp_path / "console"
    shutil.copytree(SOURCES, console, ignore=shutil.ignore_patterns("node_modules"))

    for command in (["install", "--no-audit", "--no-fund"], ["run", "check"], ["run", "build"]):
        subprocess.run([npm, *command], cwd=console, check=True)

    assert _files(tmp_path / "cornserve/gateway/console/static") == _files(BUILT)


def _files(directory: Path) -> dict[Path, bytes]:
    return {file.relative_to(directory): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
