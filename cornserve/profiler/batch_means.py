"""Confidence intervals of throughputs by the method of batch means."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt

BATCHES = 5
"""The batches of requests in sequence whose means are compared. Few batches are long, and so nearly independent."""

T_QUANTILE = 2.776
"""The 97.5 % quantile of Student's t distribution with `BATCHES` - 1 degrees of freedom."""

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
    first = ceil(len(ends) / 5 / concurrency) * concurrency
    rounds = (len(ends) - first) // (BATCHES * concurrency)
    size = rounds * concurrency
    if size < MIN_PER_BATCH:
        return None
    times = ends[first - 1 : first + size * BATCHES : size]
    durations = [end - start for start, end in pairwise(times)]
    if min(durations) <= 0:
        return None
    rates = [size / duration for duration in durations]
    rate = size * BATCHES / sum(durations)
    return RateEstimate(rate, statistics.stdev(rates) / sqrt(BATCHES) / rate)
