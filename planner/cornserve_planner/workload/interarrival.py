"""The times between arrivals: renewal processes, stretched by a rate that changes.

Gaps are drawn with mean 1 and laid along the integral of the rate (time rescaling), so that the rate of arrivals is the
given one at every moment, whatever the burstiness. With exponential gaps that is the non-homogeneous Poisson process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.workload.rate_curve import RateCurve

Family = Literal["poisson", "gamma", "weibull"]
"""Those that ServeGen fits [ServeGen §3]."""

Rng = Any
"""A `numpy.random.Generator`."""

_BEFORE = 50.0
"""Gaps for which a process has run when it is first looked at: it does not begin with an arrival."""


@dataclass(frozen=True, slots=True)
class InterarrivalGaps:
    family: Family = "poisson"
    cv: float = 1.0
    """Standard deviation over mean: 1 for Poisson, above 1 in bursts, below 1 evenly."""

    def __post_init__(self) -> None:
        if self.family not in get_args(Family):
            raise InvalidInputError("family", f"must be one of {', '.join(get_args(Family))}, not {self.family!r}")
        if not (math.isfinite(self.cv) and self.cv > 0):
            raise InvalidInputError("cv", f"must be positive, not {self.cv}")
        if self.family == "poisson" and self.cv != 1:
            raise InvalidInputError("cv", f"must be 1 for a Poisson process, not {self.cv}")

    def draw(self, count: int, rng: Rng) -> Any:
        """Gaps of mean 1, as an array of `count` float64."""
        match self.family:
            case "poisson":
                return rng.standard_exponential(count)
            case "gamma":
                return rng.standard_gamma(1 / self.cv**2, count) * self.cv**2
            case "weibull":
                shape = weibull_shape(self.cv)
                return rng.weibull(shape, count) / math.gamma(1 + 1 / shape)


def draw_arrivals(curve: RateCurve, gaps: InterarrivalGaps | Iterable[InterarrivalGaps], rng: Rng) -> Any:
    """Seconds since the start, ascending, as an array of float64.

    Args:
        gaps: of the whole curve, or of each of its steps.
    """
    kinds = [gaps] * len(curve.rates) if isinstance(gaps, InterarrivalGaps) else list(gaps)
    found = []
    ahead = -_BEFORE
    for index, (rate, kind) in enumerate(zip(curve.rates, kinds, strict=True)):
        expected = rate * curve.step
        if not expected:
            continue
        within, ahead = _draw_within(ahead, expected, kind, rng)
        found.append((index + within / expected) * curve.step)
    return np.concatenate(found) if found else np.empty(0)


def _draw_within(start: float, end: float, gaps: InterarrivalGaps, rng: Rng) -> tuple[Any, float]:
    """What falls on [0, end) of a process that had its last arrival at `start`, or has its next there, and how far
    beyond the end the next one is."""
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
    """The shape with that coefficient of variation, by bisection: there is no closed form."""
    low, high = 0.05, 100.0
    if not weibull_cv(high) <= cv <= weibull_cv(low):
        raise InvalidInputError("cv", f"must be within the range of Weibull shapes from 0.05 to 100, not {cv}")
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if weibull_cv(middle) > cv else (low, middle)
    return low


def weibull_cv(shape: float) -> float:
    return math.sqrt(math.expm1(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)))
