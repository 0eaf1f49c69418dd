"""The tests that compare the simulator with queueing theory, single steps and the decisions of gateways (V0 to V2)."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]

SUITES = {
    "V0": ("queueing theory", ("tests/unit/planner/simulation/test_queueing_theory.py",)),
    "V1": (
        "one event per step, and vLLM's scheduler",
        ("tests/unit/planner/simulation/test_language_model.py", "tests/integration/llm/test_simulated_scheduler.py"),
    ),
    "V2": (
        "decisions of gateways and controllers",
        ("tests/unit/gateway/test_decision_log.py", "tests/unit/control/test_decision_log.py"),
    ),
}


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """The tests of a comparison: their numbers, and the seconds that they took."""

    compared_with: str
    passed: int
    failed: int
    seconds: float


def run_suite(case: str) -> SuiteRow:
    """Runs the tests of a case. Raises `RuntimeError` if they cannot run."""
    name, paths = SUITES[case]
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "0", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    passed, failed = counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)
    if not passed and not failed:
        raise RuntimeError(f"the tests of {case} did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return SuiteRow(name, passed, failed, time.monotonic() - started)
