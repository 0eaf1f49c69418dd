"""Measurements of simulated replicas: their rates, intervals and levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, repeat
from random import Random
from typing import cast

import pytest

from cornserve.profiler.batch_means import T_QUANTILE
from cornserve.profiler.loads import IsDone, LoadDriver, Observations
from cornserve.profiler.mix_measurement import Precision, measure_mix
from cornserve.profiler.results import MixMeasurement, MixShare

MIX = (MixShare(components=("llm",), share=1),)

OVERHEAD = 0.01
"""Seconds between the end of a request and the arrival of the next one of the same client."""


@dataclass(slots=True)
class SimulatedClock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class SimulatedObservations(Observations):
    """Observations whose clock is the last completion."""

    def now(self) -> float:
        return self.ends[-1] if self.ends else 0.0


@dataclass
class SimulatedReplica:
    """Takes the place of a `LoadDriver`: one server with the given service times, in seconds."""

    services: Iterator[float]
    replicas: int = 1
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    seen: list[int] = field(default_factory=list)
    """The requests in flight of each closed loop."""

    async def closed_loop(self, concurrency: int, is_done: IsDone) -> Observations:
        self.seen.append(concurrency)
        return self._serve([0.0] * concurrency, is_done, concurrency)

    async def poisson(self, rate: float, is_done: IsDone, random: Random) -> Observations:
        arrivals = [0.0]
        while len(arrivals) < 1000:
            arrivals.append(arrivals[-1] + random.expovariate(rate))
        return self._serve(arrivals, is_done)

    def _serve(self, arrivals: list[float], is_done: IsDone, clients: int = 1) -> Observations:
        observations, free = SimulatedObservations(concurrency=clients), 0.0
        while not is_done(observations):
            arrival = arrivals.pop(0)
            free = max(free, arrival) + next(self.services)
            observations.ends.append(free)
            observations.latencies.append(free - arrival)
            arrivals.append(free + OVERHEAD)
        for arrival in [each for each in arrivals if each <= free][:clients]:  # The requests in flight are served.
            free += next(self.services)
            observations.ends.append(free)
            observations.latencies.append(free - arrival)
        self.clock.now += free
        return observations


async def measured(replica: SimulatedReplica, half_width: float, seconds: float = 600) -> MixMeasurement:
    driver = cast(LoadDriver, replica)
    return await measure_mix(driver, MIX, "a", Precision(half_width), seconds, clock=replica.clock)


def batched(values: list[float]) -> list[tuple[float, float]]:
    return list(zip(values[::2], values[1::2], strict=True))


def random_services(seed: int) -> Iterator[float]:
    random = Random(seed)
    while True:
        yield random.uniform(0.02, 0.06)


async def test_the_rate_is_that_of_the_service_time_with_enough_requests_in_flight() -> None:
    replica = SimulatedReplica(repeat(0.04))
    found = await measured(replica, 0.03)

    assert found.rate == pytest.approx(1 / 0.04)
    assert found.levels[0].rate == pytest.approx(1 / (0.04 + OVERHEAD))
    assert replica.seen == [1, 4, 16]
    assert found.is_saturated
    assert found.poisson is not None
    assert found.poisson.rate == pytest.approx(0.8 / 0.04)


async def test_measurements_of_one_option_agree_within_their_intervals() -> None:
    found = [await measured(SimulatedReplica(random_services(seed)), 0.05) for seed in range(200)]
    lows = [each.rate * (1 - T_QUANTILE * each.standard_error) for each in found]
    highs = [each.rate * (1 + T_QUANTILE * each.standard_error) for each in found]

    agree = [max(low) <= min(high) for low, high in zip(batched(lows), batched(highs), strict=True)]
    assert agree.count(True) >= 95
    assert sum(low <= 1 / 0.04 <= high for low, high in zip(lows, highs, strict=True)) >= 170
    assert all(high - low <= 0.1 * high for low, high in zip(lows, highs, strict=True))


class BatchingReplica(SimulatedReplica):
    """Starts a batch of all waiting requests when the last one has ended, and completes them at once."""

    async def closed_loop(self, concurrency: int, is_done: IsDone) -> Observations:
        self.seen.append(concurrency)
        observations, random = SimulatedObservations(concurrency=concurrency), Random(concurrency)
        now = 0.0
        while not is_done(observations):
            seconds = (0.1 + 0.02 * min(concurrency, 16) + 0.05 * max(0, concurrency - 16)) * random.uniform(0.99, 1.01)
            now += seconds
            observations.ends.extend([now] * concurrency)
            observations.latencies.extend([seconds] * concurrency)
        self.clock.now += now
        return observations


async def test_requests_that_an_engine_completes_at_once_have_a_narrow_interval() -> None:
    replica = BatchingReplica(repeat(0.02))
    found = await measured(replica, 0.05)

    assert replica.seen == [1, 4, 16, 64]
    assert found.rate == pytest.approx(16 / 0.42, rel=0.03)
    assert all(level.standard_error < 0.01 for level in found.levels)
    assert all(level.requests <= 2 * 7 * level.concurrency + 25 for level in found.levels)


class DisturbedReplica(SimulatedReplica):
    """Serves more requests per second with more in flight, up to 64. Other processes disturb one level."""

    async def closed_loop(self, concurrency: int, is_done: IsDone) -> Observations:
        slowdown = 1.03 if concurrency == 4 else 1.0
        self.services = (0.04 / min(concurrency, 64) * slowdown**number for number in count())
        return await super().closed_loop(concurrency, is_done)


async def test_a_disturbed_level_does_not_show_that_the_replica_is_saturated() -> None:
    replica = DisturbedReplica(repeat(0.0))
    found = await measured(replica, 0.03, seconds=60)

    assert replica.seen == [1, 4, 16, 64, 256]
    assert found.rate == pytest.approx(64 / 0.04)
    assert found.levels[1].rate < found.levels[0].rate


@pytest.mark.parametrize("seconds", [0, 1, 3, 10, 30])
async def test_a_measurement_with_little_time_has_a_wide_interval(seconds: float) -> None:
    replica = SimulatedReplica(repeat(0.5))
    found = await measured(replica, 0.03, seconds=seconds)

    assert found.rate == pytest.approx(1 / 0.5, rel=0.2)
    assert not found.is_saturated
    assert replica.clock.now <= max(seconds, 1.5)


async def test_a_replica_that_serves_many_requests_at_once_is_measured_with_many_in_little_time() -> None:
    replica = BatchingReplica(repeat(0.02))
    found = await measured(replica, 0.05, seconds=8)

    assert found.rate > 0.8 * 16 / 0.42
    assert replica.clock.now <= 8.5
