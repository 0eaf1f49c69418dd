"""Inter-arrival times: renewal processes with a rate that changes over time.

Gaps are drawn with mean 1 and placed along the integral of the rate (time rescaling). The arrival rate is therefore the
given one at every moment, for any burstiness. Exponential gaps result in a non-homogeneous Poisson process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np

from cornserve_planner.errors import InvalidInputError, require_between, require_positive
from cornserve_planner.workload.rate_curve import RateCurve

Family = Literal["poisson", "gamma", "weibull"]
"""The families that ServeGen fits [ServeGen §3]."""

Rng = Any
"""A `numpy.random.Generator`."""

MIN_GAMMA_CV, MAX_GAMMA_CV = 1e-3, 1e3
"""Beyond them, the shape of the distribution is too large or too small for floating-point numbers."""

_WARM_UP_GAPS = 50.0
"""Length of the warm-up in gaps, so that the process does not start with an arrival."""


@dataclass(frozen=True, slots=True)
class InterarrivalGaps:
    family: Family = "poisson"
    cv: float = 1.0
    """Standard deviation divided by mean: 1 for Poisson, above 1 for bursts, below 1 for regular arrivals."""

    def __post_init__(self) -> None:
        if self.family not in get_args(Family):
            raise InvalidInputError("family", f"must be one of {', '.join(get_args(Family))}, not {self.family!r}")
        require_positive("cv", self.cv)
        if self.family == "gamma":
            require_between("cv", self.cv, MIN_GAMMA_CV, MAX_GAMMA_CV)
        if self.family == "poisson" and self.cv != 1:
            raise InvalidInputError("cv", f"must be 1 for a Poisson process, not {self.cv}")

    def draw(self, count: int, rng: Rng) -> Any:
        """Returns `count` gaps with mean 1 as an array of float64."""
        match self.family:
            case "poisson":
                return rng.standard_exponential(count)
            case "gamma":
                return rng.standard_gamma(1 / self.cv**2, count) * self.cv**2
            case "weibull":
                shape = weibull_shape(self.cv)
                return rng.weibull(shape, count) / math.gamma(1 + 1 / shape)


def draw_arrivals(curve: RateCurve, gaps: InterarrivalGaps | Iterable[InterarrivalGaps], rng: Rng) -> Any:
    """Returns ascending seconds since the start as an array of float64.

    Args:
        gaps: one distribution for the whole curve, or one for each step.
    """
    kinds = [gaps] * len(curve.rates) if isinstance(gaps, InterarrivalGaps) else list(gaps)
    found = []
    next_arrival = -_WARM_UP_GAPS
    for index, (rate, kind) in enumerate(zip(curve.rates, kinds, strict=True)):
        expected = rate * curve.step
        if not expected:
            continue
        within, next_arrival = _draw_within(next_arrival, expected, kind, rng)
        found.append((index + within / expected) * curve.step)
    return np.concatenate(found) if found else np.empty(0)


def _draw_within(start: float, end: float, gaps: InterarrivalGaps, rng: Rng) -> tuple[Any, float]:
    """Draws the arrivals on [0, end).

    Args:
        start: the last arrival before 0, or the first arrival.

    Returns the arrivals, and the distance from the end to the next arrival.
    """
    spots = [np.array([start])] if start >= 0 else [np.empty(0)]
    at = start
    while at < end:
        count = int((end - at) + 4 * gaps.cv * math.sqrt(end - at)) + 8
        spots.append(at + np.cumsum(gaps.draw(count, rng)))
        at = float(spots[-1][-1])
    every = np.concatenate(spots)
    beyond = int(np.searchsorted(every, end))
    return every[np.searchsorted(every, 0) : beyond], float(every[beyond]) - end


@cache
def weibull_shape(cv: float) -> float:
    """Returns the shape with the given coefficient of variation, by bisection because a closed form does not exist."""
    low, high = 0.05, 100.0
    if not weibull_cv(high) <= cv <= weibull_cv(low):
        raise InvalidInputError("cv", f"must be within the range of Weibull shapes from 0.05 to 100, not {cv}")
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if weibull_cv(middle) > cv else (low, middle)
    return low


def weibull_cv(shape: float) -> float:
    return math.sqrt(math.expm1(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)))
