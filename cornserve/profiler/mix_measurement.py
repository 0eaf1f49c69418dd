"""Measures the throughput and the latencies of an option for one mix of requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TypedDict

from cornserve.bench.percentiles import percentile
from cornserve.profiler.batch_means import MIN_COMPLETIONS, T_QUANTILE, RateEstimate
from cornserve.profiler.loads import LoadDriver, Observations
from cornserve.profiler.results import LoadLevel, MixMeasurement, MixShare, PoissonLoad

CONCURRENCIES = (1, 4, 16, 64, 256)
"""The requests in flight per replica of the levels, in order."""

LOW_PART, HIGH_PART = 0.2, 0.6
"""The largest part of the remaining time that one level may take: with few requests in flight, which show latencies,
and with many, from which the throughput follows."""

LOW_COMPLETIONS = 100
"""The completions per replica after which a level with few requests in flight ends, also if its interval is wider."""

HIGH_CONCURRENCY = 16
"""The least number of requests in flight of a level that may take `HIGH_PART`."""

POISSON_UTILIZATION = 0.8
"""The rate of the Poisson arrivals, relative to the throughput: the planner's default utilization."""

POISSON_REQUESTS = 40

MIN_ROUNDS = 7
"""The least number of completions of a level, relative to its requests in flight. Then, each batch is as long as the
requests that an engine completes at once."""

LOOK_GROWTH = 1.25
"""The factor between the numbers of completions at which the interval is computed. An interval that is computed after
each completion is narrow by chance at some time: then, 20 % of the 95 % intervals do not contain the rate."""

GAIN = 1.03
"""More requests in flight must increase the rate by this factor; otherwise the replica is saturated."""

ROUGH_GAIN = 1.25
"""The rate of a level with a wide interval counts only if it is higher than that of others by this factor."""


class LatencySummary(TypedDict):
    """Mean and percentiles of latencies in seconds."""

    seconds: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Precision:
    """The precision of a measurement.

    Args:
        half_width: the largest half width of the throughput's 95 % confidence interval, relative to the throughput.
        has_arrivals: whether it also has Poisson arrivals, which a plan does not need.
    """

    half_width: float
    has_arrivals: bool = True

    @property
    def standard_error(self) -> float:
        return self.half_width / T_QUANTILE


async def measure_mix(
    driver: LoadDriver,
    mix: Sequence[MixShare],
    requests: str,
    precision: Precision,
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> MixMeasurement:
    """Increases the requests in flight until the throughput does not increase, then sends Poisson arrivals.

    Raises `MeasurementFailedError` if requests fail.

    Args:
        seconds: the time after which it ends, also if the interval is wider.
    """
    deadline = clock() + seconds
    levels: list[LoadLevel] = []
    for concurrency in CONCURRENCIES:
        highest = max((level.rate for level in levels), default=None)
        level = await _level(driver, concurrency, precision, max(0.0, deadline - clock()), highest)
        if level is None:
            break
        levels.append(level)
        if _is_saturated(levels, precision):
            break
    best = _best(levels, precision)
    return MixMeasurement(
        mix=tuple(mix),
        requests=requests,
        rate=best.rate,
        standard_error=best.standard_error,
        replicas=driver.replicas,
        is_saturated=_is_saturated(levels, precision),
        levels=tuple(levels),
        poisson=await _poisson(driver, best.rate, deadline - clock()) if precision.has_arrivals else None,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _best(levels: Sequence[LoadLevel], precision: Precision) -> LoadLevel:
    """Returns the level with the most requests in flight whose rate may be the highest.

    The level with the highest rate is a biased choice if several levels have nearly the same rate. Levels with a wider
    interval than `precision` count only if their rate is notably higher.
    """
    precise = [level for level in levels if level.standard_error <= precision.standard_error]
    bound = max((level.rate * (1 - T_QUANTILE * level.standard_error) for level in precise), default=0.0)
    best = next((level for level in reversed(precise) if level.rate >= bound), None)
    for level in levels:
        if best is None or level.rate > best.rate * ROUGH_GAIN:
            best = level
    assert best is not None
    return best


def _is_saturated(levels: Sequence[LoadLevel], precision: Precision) -> bool:
    """Returns whether the last level has not increased the rate.

    The second one does not show it: other processes may have disturbed it. Neither does a level with a wider interval
    than `precision`. After the last level, nothing is left to try.
    """
    if len(levels) == len(CONCURRENCIES):
        return True
    if len(levels) < 3 or levels[-1].standard_error > precision.standard_error:
        return False
    return levels[-1].rate < max(level.rate for level in levels[:-1]) * GAIN


async def _level(
    driver: LoadDriver, concurrency: int, precision: Precision, left: float, rate: float | None
) -> LoadLevel | None:
    """Returns None if the time does not suffice for two rounds, the last of which completes after the end of the load.

    Args:
        left: the seconds until the end of the measurement.
        rate: the highest rate of the earlier levels. None for the first one, which is always measured.
    """
    is_high = concurrency >= HIGH_CONCURRENCY
    limit = left * (HIGH_PART if is_high else LOW_PART)
    if rate is not None:
        limit = min(limit, left - concurrency / rate)
        if limit < concurrency / rate:
            return None
    estimate: RateEstimate | None = None

    most = LOW_COMPLETIONS * driver.replicas
    next_look = float(max(MIN_COMPLETIONS, concurrency * driver.replicas * MIN_ROUNDS))

    def is_done(observations: Observations) -> bool:
        nonlocal estimate, next_look
        is_late = observations.now() > limit or (not is_high and len(observations.ends) >= most)
        if not is_late and len(observations.ends) < next_look:
            return False
        next_look = len(observations.ends) * LOOK_GROWTH
        estimate = observations.throughput()
        if is_late and estimate is None and observations.ends:
            estimate = observations.rough_throughput()
        return is_late or (estimate is not None and estimate.half_width <= precision.half_width)

    observations = await driver.closed_loop(concurrency, is_done)
    estimate = estimate or observations.rough_throughput()
    return LoadLevel(
        concurrency=concurrency,
        rate=estimate.rate,
        standard_error=estimate.standard_error,
        requests=len(observations.ends),
        **_summary(observations.latencies[len(observations.latencies) // 5 :]),
    )


async def _poisson(driver: LoadDriver, throughput: float, limit: float) -> PoissonLoad | None:
    """Returns None if `limit` seconds do not suffice."""
    rate = throughput * POISSON_UTILIZATION
    if limit * rate < POISSON_REQUESTS:
        return None

    def is_done(seen: Observations) -> bool:
        return len(seen.ends) >= POISSON_REQUESTS or seen.now() > limit

    observations = await driver.poisson(rate, is_done, Random(0))
    return PoissonLoad(rate=rate, requests=len(observations.ends), **_summary(observations.latencies))


def _summary(latencies: Sequence[float]) -> LatencySummary:
    ordered = sorted(latencies)
    return LatencySummary(seconds=sum(ordered) / len(ordered), p50=percentile(ordered, 50), p99=percentile(ordered, 99))
