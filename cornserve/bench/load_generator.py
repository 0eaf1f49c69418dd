"""Sends requests in a closed loop (fixed concurrency), or an open loop (fixed rate, or recorded times)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from cornserve import file_limit
from cornserve.bench.arrivals import arrivals
from cornserve.bench.recorded_arrivals import RecordedArrival, RequestEnds
from cornserve.bench.requests import BenchRequest, RequestSource
from cornserve.bench.statistics import RequestSample, RunStatistics
from cornserve.bench.timed_client import TimedClient


@dataclass(frozen=True, slots=True)
class LoadShape:
    """The load of a run. It ends after `requests` or `duration`, whichever comes first."""

    concurrency: int | None = None
    """Closed loop: the number of requests in flight."""
    rate: float | None = None
    """Open loop: requests per second, independent of the number in flight."""
    burstiness: float = 1.0
    requests: int | None = None
    duration: float | None = None
    recorded: Sequence[RecordedArrival] | None = None
    """Open loop: the arrivals of all requests."""

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.concurrency, self.rate, self.recorded)) != 1:
            raise ValueError("set either concurrency, rate or recorded")
        if self.requests is None and self.duration is None and self.recorded is None:
            raise ValueError("set requests or duration")


class LoadGenerator:
    """Runs one load. `stop` ends it early and keeps the measurements."""

    def __init__(self, shape: LoadShape, requests: RequestSource, client: TimedClient, seed: int) -> None:
        self.statistics = RunStatistics()
        self.seconds = 0.0
        """The duration of the run, to the last response."""
        self.cpu = 0.0
        """The share of one core that this process used."""
        self.is_stopped = False
        self._shape = shape
        self._requests = requests
        self._client = client
        self._random = Random(seed)
        self._started = 0.0
        self._sent = 0
        self._running: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Returns the seconds since the start."""
        return time.perf_counter() - self._started

    async def run(self) -> None:
        file_limit.raise_file_limit()
        cpu = time.process_time()
        self._started = time.perf_counter()
        self._running = asyncio.create_task(self._run_load())
        with suppress(asyncio.CancelledError):
            await self._running
        self.seconds = self.now()
        self.cpu = (time.process_time() - cpu) / self.seconds

    def stop(self) -> None:
        self.is_stopped = True
        if self._running is not None:
            self._running.cancel()

    async def _run_load(self) -> None:
        if self._shape.recorded is not None:
            await self._run_recorded(self._shape.recorded)
        elif self._shape.rate:
            await self._run_open_loop()
        else:
            await self._run_closed_loop()

    async def _run_closed_loop(self) -> None:
        async def client() -> None:
            while self._claim(self.now()):
                await self._send(self.now(), next(self._requests))

        async with asyncio.TaskGroup() as clients:
            for _ in range(self._shape.concurrency or 0):
                clients.create_task(client())

    async def _run_open_loop(self) -> None:
        async with asyncio.TaskGroup() as in_flight:
            for due in self._arrivals():
                if not self._claim(due):
                    break
                if (pause := due - self.now()) > 0:
                    await asyncio.sleep(pause)
                in_flight.create_task(self._send(due, next(self._requests)))

    async def _run_recorded(self, arrivals: Sequence[RecordedArrival]) -> None:
        """Sends each request at its time, in the order of the file, or when the requests before it have ended."""
        ends, offered = RequestEnds(self.now), [each for each in arrivals if self._claim(each.due)]
        self.statistics.unsent = len(offered)

        async def send(arrival: RecordedArrival, request: BenchRequest) -> None:
            due = await ends.wait(arrival)
            self.statistics.unsent -= 1
            await self._send(due, request)
            ends.end(arrival)

        async with asyncio.TaskGroup() as in_flight:
            for arrival in offered:
                if (pause := arrival.due - self.now()) > 0:
                    await asyncio.sleep(pause)
                ends.start(arrival)
                in_flight.create_task(send(arrival, next(self._requests)))

    def _arrivals(self) -> Iterator[float]:
        assert self._shape.rate is not None
        return arrivals(self._shape.rate, self._shape.burstiness, self._random)

    def _claim(self, due: float) -> bool:
        """Counts a request that arrives at `due`; returns False if the run ends before it."""
        self._sent += 1
        requests, duration = self._shape.requests, self._shape.duration
        return (requests is None or self._sent <= requests) and (duration is None or due < duration)

    async def _send(self, due: float, request: BenchRequest) -> None:
        sample = RequestSample(due, sent=self.now(), media=request.media)
        self.statistics.start_request(sample)
        try:
            await self._client.run(request.call, sample, self.now)
        except asyncio.CancelledError:
            self.statistics.cancel_request()
            raise
        self.statistics.finish_request(sample)
