"""Confidence intervals of throughputs by the method of batch means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

BATCHES = 10
"""The batches of completions in sequence whose rates are compared. Few batches are long, and so nearly independent."""

T_QUANTILE = 2.262
"""The 97.5 % quantile of Student's t distribution with `BATCHES` - 1 degrees of freedom."""

MIN_PER_BATCH = 2

MIN_COMPLETIONS = 26
"""The least number of completions from which a rate is estimated: four fifths of them, one to start, fill the batches.
"""


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """A throughput in requests per second.

    Args:
        standard_error: standard error of the rate, relative to the rate.
        completions: the number of completed requests from which it follows.
    """

    rate: float
    standard_error: float
    completions: int

    @property
    def half_width(self) -> float:
        """Half of the 95 % confidence interval, relative to the rate."""
        return T_QUANTILE * self.standard_error


def estimate_rate(completions: Sequence[float]) -> RateEstimate | None:
    """Estimates the throughput from the times at which requests completed, in seconds and in order.

    The first fifth does not count: the system fills up. Returns None for too few completions.
    """
    steady = completions[len(completions) // 5 :]
    size = (len(steady) - 1) // BATCHES
    if size < MIN_PER_BATCH:
        return None
    ends = steady[-1 - size * BATCHES :: size]
    if min(end - start for start, end in pairwise(ends)) <= 0:
        return None
    rates = [size / (end - start) for start, end in pairwise(ends)]
    rate = size * BATCHES / (ends[-1] - ends[0])
    return RateEstimate(rate, statistics.stdev(rates) / math.sqrt(BATCHES) / rate, len(completions))
