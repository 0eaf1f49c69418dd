"""Sends requests, as many at once or as many per second as are wanted, and ends by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from cornserve import file_limit
from cornserve.bench.arrivals import arrivals
from cornserve.bench.exchange import Exchanges
from cornserve.bench.requests import Requests
from cornserve.bench.samples import Sample, Tally


@dataclass(frozen=True, slots=True)
class Shape:
    """How much is sent: a number of requests or seconds, whichever is over first."""

    concurrency: int | None = None
    """Closed loop: so many are in flight, and one that is answered makes room for the next."""
    rate: float | None = None
    """Open loop: so many come per second, however many are in flight."""
    burstiness: float = 1.0
    requests: int | None = None
    duration: float | None = None

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate is None):
            raise ValueError("a load has either a concurrency or a rate")
        if self.requests is None and self.duration is None:
            raise ValueError("a load has an end: a number of requests, or a duration")


class Load:
    """One run. `stop` ends it at once; what was measured by then stays."""

    def __init__(self, shape: Shape, requests: Requests, exchanges: Exchanges, seed: int) -> None:
        self.tally = Tally()
        self.seconds = 0.0
        """How long it took, to the last answer."""
        self.cpu = 0.0
        """The part of a core that this process used meanwhile."""
        self.is_stopped = False
        self._shape = shape
        self._requests = requests
        self._exchanges = exchanges
        self._random = Random(seed)
        self._started = 0.0
        self._begun = 0
        self._running: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    async def run(self) -> None:
        file_limit.raise_file_limit()
        cpu = time.process_time()
        self._started = time.perf_counter()
        self._running = asyncio.create_task(self._open() if self._shape.rate else self._closed())
        with suppress(asyncio.CancelledError):
            await self._running
        self.seconds = self.now()
        self.cpu = (time.process_time() - cpu) / self.seconds

    def stop(self) -> None:
        self.is_stopped = True
        if self._running is not None:
            self._running.cancel()

    async def _closed(self) -> None:
        async def client() -> None:
            while self._claim(self.now()):
                await self._one(self.now())

        async with asyncio.TaskGroup() as clients:
            for _ in range(self._shape.concurrency or 0):
                clients.create_task(client())

    async def _open(self) -> None:
        async with asyncio.TaskGroup() as flying:
            for due in self._arrivals():
                if not self._claim(due):
                    break
                if (pause := due - self.now()) > 0:
                    await asyncio.sleep(pause)
                flying.create_task(self._one(due))

    def _arrivals(self) -> Iterator[float]:
        assert self._shape.rate is not None
        return arrivals(self._shape.rate, self._shape.burstiness, self._random)

    def _claim(self, due: float) -> bool:
        """Takes the next request, if there is one more that is due then."""
        self._begun += 1
        requests, duration = self._shape.requests, self._shape.duration
        return (requests is None or self._begun <= requests) and (duration is None or due < duration)

    async def _one(self, due: float) -> None:
        call = next(self._requests)
        sample = Sample(due, sent=self.now())
        self.tally.begin(sample)
        try:
            await self._exchanges.run(call, sample, self.now)
        except asyncio.CancelledError:
            self.tally.cut()
            raise
        self.tally.end(sample)
