from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_reproduction_page_is_current() -> None:
    command = [sys.executable, "-m", "benchmarks.reproduction", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
