"""Large requests do not block the gateway's event loop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "large_bodies.py"

MAX_CPU_MS = 50
"""CPU time, because the loop also stalls while other processes use the cores."""


def test_no_body_blocks_the_event_loop_for_long() -> None:
    command = [sys.executable, str(BENCHMARK), "--json"]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=170).stdout)

    stalls = {result["request"]: round(result["stall_cpu_ms"]) for result in report["results"]}
    slowest = max(MAX_CPU_MS, 3 * stalls["text, 7 MB"])  # CPU times grow on a busy machine.
    assert {name: stall for name, stall in stalls.items() if stall > slowest} == {}
    statuses = {result["request"]: result["status"] for result in report["results"]}
    assert statuses["text, 60 MB"] == 413
    assert statuses["64 images, 45 MB"] == statuses["text, 7 MB"] == 200
