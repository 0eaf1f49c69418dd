"""`scripts.measure_suite` measures a command and everything that it starts."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.integration.docs.pages import ROOT

BURN = "import time; memory = bytearray(200 * 2**20)\nwhile time.process_time() < 1.5: pass"


def measure(*command: str) -> tuple[int, dict[str, float]]:
    """Returns the exit status and the numbers by their names."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.measure_suite", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = re.findall(r"^(wall time|CPU time|peak memory) +([\d.]+)", done.stdout, re.MULTILINE)
    return done.returncode, {name: float(number) for name, number in found}


def test_processes_that_outlive_their_parents_are_measured() -> None:
    # The shell waits for the output of the orphan to end.
    script = 'ignored=$("$@" &); exit 3'

    status, measured = measure("bash", "-c", script, "bash", sys.executable, "-c", BURN)

    assert status == 3
    assert measured["wall time"] >= 1
    assert 1 <= measured["CPU time"] <= 4
    assert 0.19 <= measured["peak memory"] <= 0.4
