from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reproduction.simulated import shares, stealing

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(420)  # Role mixes and decoupled instances are simulated at many rates.
@pytest.mark.parametrize("page", ["reproduction", "simulated-figures"])
def test_the_pages_are_current(page: str) -> None:
    command = [sys.executable, "-m", "benchmarks.reproduction", page, "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("figures", [shares, stealing], ids=lambda module: module.__name__.rpartition(".")[2])
def test_quick_sections_of_simulated_figures_are_current(figures: object) -> None:
    """The page has the section that a module writes now."""
    section: str = figures.section()  # type: ignore[attr-defined]

    assert section in (ROOT / "docs/simulated-figures.md").read_text(encoding="utf-8")
