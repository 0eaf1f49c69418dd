"""A rate that changes over time, as a step function."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError, require_non_negative, require_positive


@dataclass(frozen=True, slots=True)
class RateCurve:
    step: float
    """Seconds of each step."""
    rates: tuple[float, ...]
    """Requests per second in each step."""

    def __post_init__(self) -> None:
        require_positive("step", self.step)
        if not self.rates:
            raise InvalidInputError("rates", "must not be empty: give the rate of at least one step")
        for index, rate in enumerate(self.rates):
            require_non_negative(f"rates[{index}]", rate)

    @property
    def seconds(self) -> float:
        return self.step * len(self.rates)

    @property
    def mean(self) -> float:
        return math.fsum(self.rates) / len(self.rates)

    def at(self, second: float) -> float:
        """Returns the rate at a time. The curve repeats after its end, so that a day can be used for a week."""
        return self.rates[int(second % self.seconds / self.step)]

    def scaled(self, mean: float) -> RateCurve:
        """Returns a curve of the same shape with another mean rate."""
        if not self.mean:
            raise InvalidInputError("rates", "are all 0 and cannot be scaled: give a rate above 0")
        require_non_negative("mean", mean)
        return RateCurve(self.step, tuple(rate * mean / self.mean for rate in self.rates))

    def between(self, start: float, end: float) -> RateCurve:
        """Returns whole steps, from the step that contains `start` to the last step before `end`."""
        is_finite = math.isfinite(start) and math.isfinite(end)
        first, last = (int(start / self.step), math.ceil(end / self.step)) if is_finite else (0, 0)
        if not 0 <= first < last <= len(self.rates):
            raise InvalidInputError(
                "start, end", f"{start} to {end} s is outside the curve's {self.seconds:g} s: give times within it"
            )
        return RateCurve(self.step, self.rates[first:last])

    def faster(self, factor: float) -> RateCurve:
        """Returns the same rates in less time, for example a day's variation in an hour."""
        require_positive("factor", factor)
        return RateCurve(self.step / factor, self.rates)
