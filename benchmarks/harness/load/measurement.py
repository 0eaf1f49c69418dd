"""Measures the requests of one job: a warm-up, a measured window, and the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks.harness.load.job import LoadJob, LoadResult
from benchmarks.harness.processes import cpu_seconds, machine_cpu_seconds

TIMEOUT_SECONDS = 120.0


class InvalidResponseError(Exception):
    """A response was wrong, incomplete or missing, so that the measurement is meaningless."""


class Measurement:
    """Measures a window of a continuing load, so that neither its start nor its end affects the result."""

    def __init__(self, job: LoadJob) -> None:
        self._job = job
        self._warm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first_counted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The first response of the window. The window stays open until then on a busy machine."""
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unconnected = job.concurrency
        self._warm_up_requests = max(20 if job.mode == "paced" else 100, job.concurrency)
        self._is_counting = False
        self._latencies: list[float] = []
        self._first_chunk_latencies: list[float] = []
        self.stopped = False
        """Whether the load must stop sending requests."""

    def add_connection(self) -> None:
        """Records that one more of the concurrent requests is being served.

        The warm-up requires all of them: under full load, a server may accept further connections slowly, and those
        that wait must not count as slow requests later.
        """
        self._unconnected -= 1

    def record_response(self, sent: float, first_chunk: float, problem: str | None) -> None:
        """Records a request that has ended, with the times when it was sent and when its response began."""
        if problem is not None:
            self._fail(problem)
            return
        if self._unconnected == 0:
            self._warm_up_requests -= 1
        if self._warm_up_requests == 0 and not self._warm.done():
            self._warm.set_result(None)
        if self._is_counting:
            if not self._latencies:
                self._first_counted.set_result(None)
            self._latencies.append(time.perf_counter() - sent)
            self._first_chunk_latencies.append(first_chunk - sent)

    def _fail(self, problem: str) -> None:
        self.stopped = True
        if not self._failure.done():
            self._failure.set_exception(InvalidResponseError(problem))

    async def run(self) -> LoadResult:
        """Measures the load. Raises `InvalidResponseError` for the first invalid response."""
        await self._wait(self._warm)
        cpu, machine, started = self._cpu(), machine_cpu_seconds(), time.perf_counter()
        self._is_counting = True
        await self._wait(asyncio.ensure_future(asyncio.sleep(self._job.seconds)))
        await self._wait(self._first_counted)
        self._is_counting = False
        seconds = time.perf_counter() - started
        used = {name: now - cpu[name] for name, now in self._cpu().items()}
        others = machine_cpu_seconds() - machine - sum(used.values())
        self.stopped = True
        return self._result(seconds, used, others)

    async def _wait(self, event: asyncio.Future[None]) -> None:
        await asyncio.wait((event, self._failure), timeout=TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not event.done():
            self._fail(f"too few responses within {TIMEOUT_SECONDS:g} s")
        if self._failure.done():
            self._failure.result()

    def _cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._job.processes} | {"load": time.process_time()}

    def _result(self, seconds: float, cpu: dict[str, float], others: float) -> LoadResult:
        requests = len(self._latencies)
        return LoadResult(
            requests=requests,
            seconds=seconds,
            p50_ms=_percentile_ms(self._latencies, 0.5),
            p99_ms=_percentile_ms(self._latencies, 0.99),
            first_p50_ms=_percentile_ms(self._first_chunk_latencies, 0.5),
            cpu_us={name: round(used / max(requests, 1) * 1e6, 1) for name, used in cpu.items()},
            others=round(max(others, 0.0) / seconds, 2),
        )


def _percentile_ms(seconds: Sequence[float], share: float) -> float:
    """Returns milliseconds; 0 without requests."""
    return round(sorted(seconds)[int(share * (len(seconds) - 1))] * 1e3, 3) if seconds else 0.0
