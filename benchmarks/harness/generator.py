"""Measures jobs, each time by a load generator in a process of its own, and settles on figures."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import to_json

from benchmarks.harness.load.job import Job, Result
from benchmarks.harness.processes import Cores, pinned

CALM = 0.15
"""Of a core: when others use more during a measurement, it is taken again, as long as patience lasts."""

ROOT = Path(__file__).resolve().parent.parent.parent


class Generator:
    """Measures again, within its patience, when others disturb it."""

    def __init__(self, cores: Cores, patience: float) -> None:
        self._cores = cores
        self._patience = patience

    def run(self, job: Job) -> Result:
        """Raises `RuntimeError` unless every answer was right."""
        result = self._run_once(job)
        while result.others > CALM and self._patience > 0:
            started = time.monotonic()
            time.sleep(1)
            result = min(result, self._run_once(job), key=lambda one: one.others)
            self._patience -= time.monotonic() - started
        return result

    def _run_once(self, job: Job) -> Result:
        command = [sys.executable, "-m", "benchmarks.harness.load", to_json(asdict(job)).decode()]
        with pinned(self._cores.others):
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"the load generator failed at {job}:\n{ended.stderr.decode()}")
        return TypeAdapter(Result).validate_json(ended.stdout)


def settle(results: Sequence[Result]) -> Result:
    """The median, figure by figure, of the calmer half: of the measurements that others disturbed least."""
    calm = sorted(results, key=lambda result: result.others)[: (len(results) + 1) // 2]
    figures = {
        field.name: statistics.median(getattr(result, field.name) for result in calm)
        for field in fields(Result)
        if field.type in ("float", "int")
    }
    cpu = {name: statistics.median(result.cpu_us[name] for result in calm) for name in calm[0].cpu_us}
    return Result(**figures, cpu_us=cpu)
