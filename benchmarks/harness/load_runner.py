"""Runs load jobs, each by a load generator in a separate process, and combines their results."""

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

from benchmarks.harness.load.job import LoadJob, LoadResult
from benchmarks.harness.processes import CoreAssignment, pinned

MAX_OTHER_CPU = 0.15
"""A measurement is repeated if other processes use more than this share of a core at the same time."""

ROOT = Path(__file__).resolve().parent.parent.parent


class LoadRunner:
    """Runs jobs; spends at most `retry_seconds` on repeating measurements that other processes disturbed."""

    def __init__(self, cores: CoreAssignment, retry_seconds: float) -> None:
        self._cores = cores
        self._retry_seconds = retry_seconds

    def run(self, job: LoadJob) -> LoadResult:
        """Raises `RuntimeError` if a response is invalid."""
        result = self._run_once(job)
        while result.others > MAX_OTHER_CPU and self._retry_seconds > 0:
            started = time.monotonic()
            time.sleep(1)
            result = min(result, self._run_once(job), key=lambda candidate: candidate.others)
            self._retry_seconds -= time.monotonic() - started
        return result

    def _run_once(self, job: LoadJob) -> LoadResult:
        command = [sys.executable, "-m", "benchmarks.harness.load", to_json(asdict(job)).decode()]
        with pinned(self._cores.others):
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"the load generator failed at {job}:\n{ended.stderr.decode()}")
        return TypeAdapter(LoadResult).validate_json(ended.stdout)


def combine(results: Sequence[LoadResult]) -> LoadResult:
    """Returns the median of each figure over the half of the results that other processes disturbed least."""
    calm = sorted(results, key=lambda result: result.others)[: (len(results) + 1) // 2]
    figures = {
        field.name: statistics.median(getattr(result, field.name) for result in calm)
        for field in fields(LoadResult)
        if field.type in ("float", "int")
    }
    cpu = {name: statistics.median(result.cpu_us[name] for result in calm) for name in calm[0].cpu_us}
    return LoadResult(**figures, cpu_us=cpu)
