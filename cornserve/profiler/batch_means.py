"""Confidence intervals of throughputs by the method of batch means."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt

BATCHES = 5
"""The batches of requests in sequence whose means are compared. Few batches are long, and so nearly independent."""

T_QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, BATCHES: 2.776}
"""The 97.5 % quantiles of Student's t distribution, by the number of batches."""

T_QUANTILE = T_QUANTILES[BATCHES]

MIN_PER_BATCH = 4

MIN_COMPLETIONS = 25
"""The least number of completions from which a rate is estimated: four fifths of them fill the batches."""


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """A throughput in requests per second.

    Args:
        standard_error: standard error of the rate, relative to the rate.
    """

    rate: float
    standard_error: float

    @property
    def half_width(self) -> float:
        """Half of the 95 % confidence interval, relative to the rate."""
        return T_QUANTILE * self.standard_error


def estimate_rate(ends: Sequence[float], concurrency: int) -> RateEstimate | None:
    """Estimates the throughput of a closed loop from the times at which requests completed, in seconds and in order.

    Engines complete several requests at once. A batch of the estimate therefore consists of whole rounds. A round has
    one completion for each request in flight. The first fifth does not count: the system fills up. Returns None for too
    few completions.
    """
    first = _filling(ends, concurrency)
    size = (len(ends) - first) // (BATCHES * concurrency) * concurrency
    return None if size < MIN_PER_BATCH else _estimate(ends, first, size, BATCHES)


def rough_rate(ends: Sequence[float], concurrency: int) -> RateEstimate:
    """Estimates the throughput of a closed loop that had to end early, from at least one completion.

    Batches are short, or each of them is one round. With fewer than three rounds, the standard error is that of events
    at random times, one for each round.
    """
    first = _filling(ends, concurrency)
    rounds = (len(ends) - first) // concurrency
    batches = min(BATCHES, rounds)
    found = _estimate(ends, first, rounds // batches * concurrency, batches) if batches in T_QUANTILES else None
    return found or RateEstimate(len(ends) / ends[-1], 1 / sqrt(max(1.0, len(ends) / concurrency)))


def _filling(ends: Sequence[float], concurrency: int) -> int:
    """Returns the number of completions while the system fills up: whole rounds, at least a fifth."""
    return ceil(len(ends) / 5 / concurrency) * concurrency


def _estimate(ends: Sequence[float], first: int, size: int, batches: int) -> RateEstimate | None:
    """Returns the mean rate of batches of `size` completions, of which the first begins after `first` completions.

    The standard error is larger for fewer than `BATCHES` batches: the half width stays that of a 95 % interval.
    """
    times = ends[first - 1 : first + size * batches : size]
    durations = [end - start for start, end in pairwise(times)]
    if min(durations) <= 0:
        return None
    rates = [size / duration for duration in durations]
    rate = size * batches / sum(durations)
    error = statistics.stdev(rates) / sqrt(batches) / rate
    return RateEstimate(rate, error * T_QUANTILES[batches] / T_QUANTILE)
