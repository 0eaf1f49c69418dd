"""Counts what ends while it is measured, and says when to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks.harness.load.job import Job, Result
from benchmarks.harness.processes import cpu_seconds, machine_cpu_seconds

PATIENCE_SECONDS = 120.0


class WrongAnswerError(Exception):
    """An answer was wrong or incomplete, or none came: what was measured would mean nothing."""


class Tally:
    """Of one job: a warm-up, a window in which answers count, and the end.

    The window is cut out of a load that goes on, so that neither the first burst nor the last stragglers count.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._warm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._counted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """An answer. The window stays open for the first, on a machine that has other things to do."""
        self._wrong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outside = job.concurrency
        self._warming = max(20 if job.mode == "paced" else 100, job.concurrency)
        self._counts = False
        self._latencies: list[float] = []
        self._firsts: list[float] = []
        self.stopped = False
        """No more requests are wanted."""

    def joined(self) -> None:
        """One more of those in flight is part of the load. Warm is only what has all of them: under full load, a server
        may be slow to accept further connections, and those that wait must not count as slow requests later.
        """
        self._outside -= 1

    def answered(self, started: float, first: float, problem: str | None) -> None:
        """A request has ended: when it was sent, when its answer began, and what is wrong with it, if anything."""
        if problem is not None:
            self._fail(problem)
            return
        if self._outside == 0:
            self._warming -= 1
        if self._warming == 0 and not self._warm.done():
            self._warm.set_result(None)
        if self._counts:
            if not self._latencies:
                self._counted.set_result(None)
            self._latencies.append(time.perf_counter() - started)
            self._firsts.append(first - started)

    def _fail(self, problem: str) -> None:
        self.stopped = True
        if not self._wrong.done():
            self._wrong.set_exception(WrongAnswerError(problem))

    async def measure(self) -> Result:
        """Raises `WrongAnswerError` as soon as one is seen."""
        await self._unless_wrong(self._warm, PATIENCE_SECONDS)
        cpu, machine, started = self._cpu(), machine_cpu_seconds(), time.perf_counter()
        self._counts = True
        await self._unless_wrong(asyncio.ensure_future(asyncio.sleep(self._job.seconds)), PATIENCE_SECONDS)
        await self._unless_wrong(self._counted, PATIENCE_SECONDS)
        self._counts = False
        seconds = time.perf_counter() - started
        spent = {name: now - cpu[name] for name, now in self._cpu().items()}
        others = machine_cpu_seconds() - machine - sum(spent.values())
        self.stopped = True
        return self._result(seconds, spent, others)

    async def _unless_wrong(self, what: asyncio.Future[None], seconds: float) -> None:
        await asyncio.wait((what, self._wrong), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not what.done():
            self._fail(f"no answer, or too few, within {seconds:g} s")
        if self._wrong.done():
            self._wrong.result()

    def _cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._job.processes} | {"load": time.process_time()}

    def _result(self, seconds: float, spent: dict[str, float], others: float) -> Result:
        requests = len(self._latencies)
        return Result(
            requests=requests,
            seconds=seconds,
            p50_ms=_percentile(self._latencies, 0.5),
            p99_ms=_percentile(self._latencies, 0.99),
            first_p50_ms=_percentile(self._firsts, 0.5),
            cpu_us={name: round(cpu / max(requests, 1) * 1e6, 1) for name, cpu in spent.items()},
            others=round(max(others, 0.0) / seconds, 2),
        )


def _percentile(seconds: Sequence[float], part: float) -> float:
    """In milliseconds; 0 if nothing ended."""
    return round(sorted(seconds)[int(part * (len(seconds) - 1))] * 1e3, 3) if seconds else 0.0
