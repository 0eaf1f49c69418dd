"""The loads of a measurement: a closed loop, or Poisson arrivals. Both end by a condition on what has completed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from cornserve.bench.arrivals import arrivals
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client.calls import ApiCall
from cornserve.profiler.batch_means import RateEstimate, estimate_rate, rough_rate

CHECK_SECONDS = 0.1


class MeasurementFailedError(Exception):
    """Requests failed during a measurement. The message is for users."""


@dataclass(slots=True)
class Observations:
    """Completions that a running load has observed. Times are seconds since its start."""

    started: float = field(default_factory=time.perf_counter)
    ends: list[float] = field(default_factory=list)
    """When requests completed."""
    latencies: list[float] = field(default_factory=list)
    concurrency: int = 1
    """The requests in flight of a closed loop, per replica."""
    replicas: int = 1
    failure: str = ""
    """Why a request failed, or an empty text."""

    def now(self) -> float:
        return time.perf_counter() - self.started

    @property
    def in_flight(self) -> int:
        """The requests in flight of a closed loop, of all replicas."""
        return self.concurrency * self.replicas

    def throughput(self) -> RateEstimate | None:
        """Returns the throughput per replica of a closed loop, or None without enough completions."""
        estimate = estimate_rate(self.ends, self.in_flight)
        return None if estimate is None else self._of_replica(estimate)

    def rough_throughput(self) -> RateEstimate:
        """Returns the throughput per replica of a closed loop that had to end early, from at least one completion."""
        return self._of_replica(rough_rate(self.ends, self.in_flight))

    def _of_replica(self, estimate: RateEstimate) -> RateEstimate:
        return replace(estimate, rate=estimate.rate / self.replicas)


IsDone = Callable[[Observations], bool]


class LoadDriver:
    """Sends requests to an app.

    Args:
        calls: the requests, without end.
        on_progress: is called about ten times per second while a load runs.
        replicas: the replicas of the measured executor.
    """

    def __init__(
        self,
        client: TimedClient,
        calls: Iterator[ApiCall],
        on_progress: Callable[[Observations], object],
        replicas: int = 1,
    ) -> None:
        self._client = client
        self._calls = calls
        self._on_progress = on_progress
        self.replicas = replicas

    async def closed_loop(self, concurrency: int, is_done: IsDone) -> Observations:
        """Keeps `concurrency` requests in flight per replica, at least for one request each.

        Raises `MeasurementFailedError` if one fails.
        """
        observations, ends = Observations(concurrency=concurrency, replicas=self.replicas), asyncio.Event()

        async def client() -> None:
            await self._send(observations, observations.now())
            while not ends.is_set():
                await self._send(observations, observations.now())

        async with asyncio.TaskGroup() as clients:
            for _ in range(observations.in_flight):
                clients.create_task(client())
            await self._watch(observations, is_done, ends)
        return _checked(observations)

    async def poisson(self, rate: float, is_done: IsDone, random: Random) -> Observations:
        """Sends `rate` requests per second and replica at random times.

        Raises `MeasurementFailedError` if one fails.
        """
        observations, ends = Observations(replicas=self.replicas), asyncio.Event()

        async def send_all(in_flight: asyncio.TaskGroup) -> None:
            for due in arrivals(rate * self.replicas, 1.0, random):
                await asyncio.sleep(max(0.0, due - observations.now()))
                if ends.is_set():
                    return
                in_flight.create_task(self._send(observations, due))

        async with asyncio.TaskGroup() as in_flight:
            in_flight.create_task(send_all(in_flight))
            await self._watch(observations, is_done, ends)
        return _checked(observations)

    async def _watch(self, observations: Observations, is_done: IsDone, ends: asyncio.Event) -> None:
        while not observations.failure and not is_done(observations):
            await asyncio.sleep(CHECK_SECONDS)
            self._on_progress(observations)
        ends.set()

    async def _send(self, observations: Observations, due: float) -> None:
        sample = RequestSample(due, sent=observations.now())
        await self._client.run(next(self._calls), sample, observations.now)
        if sample.error is not None:
            observations.failure = observations.failure or sample.reason or sample.error
        else:
            observations.ends.append(sample.ended)
            observations.latencies.append(sample.latency)


def _checked(observations: Observations) -> Observations:
    if observations.failure:
        raise MeasurementFailedError(f"a request failed during the measurement: {observations.failure}")
    return observations
