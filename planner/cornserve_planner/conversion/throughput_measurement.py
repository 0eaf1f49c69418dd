"""Measured throughputs of deployment options, with their errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cornserve_plan.plan import SHARES_TOLERANCE
from cornserve_planner.errors import InvalidInputError, require_non_negative, require_positive
from cornserve_planner.model.graph import ExecutorGraph, RequestType
from cornserve_planner.profiles.sourced_value import Tag

DEFAULT_ERRORS: dict[Tag, float] = {"measured": 0.05, "published": 0.05, "predicted": 0.4}
"""Relative standard errors of rates that state none. Predictions are typically wrong by a factor of 1.4 to 1.6
(`benchmarks/reproduction/accuracy.py`)."""

_WEIGHT: dict[Tag, int] = {"measured": 0, "published": 1, "predicted": 2}


@dataclass(frozen=True, slots=True)
class ThroughputMeasurement:
    """The throughput of one replica of an option.

    Args:
        rate: requests per second, counting all requests of the mix, including those that skip the option.
        mix: the share of each request type, by name.
        error: relative standard error of the rate; None for the default of the tag.
    """

    option: str
    rate: float
    mix: Mapping[str, float]
    tag: Tag = "measured"
    source: str = ""
    error: float | None = None

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of the rate."""
        return DEFAULT_ERRORS[self.tag] if self.error is None else self.error

    def check(self, graph: ExecutorGraph, types: Mapping[str, RequestType]) -> None:
        """Raises `InvalidInputError` unless the measurement belongs to the model and the types."""
        where = f"measurements of {self.option}"
        if self.option not in graph.option:
            raise InvalidInputError(where, f"is not an option of the model: use one of {', '.join(graph.option)}")
        require_positive(f"{where}.rate", self.rate)
        require_positive(f"{where}.error", self.spread)
        for name, share in self.mix.items():
            if name not in types:
                raise InvalidInputError(
                    f"{where}.mix", f"{name!r} is not a request type: use one of {', '.join(types)}"
                )
            require_non_negative(f"{where}.mix.{name}", share)
        if abs((total := math.fsum(self.mix.values())) - 1) > SHARES_TOLERANCE:
            raise InvalidInputError(f"{where}.mix", f"the shares add up to {total:.6g}, not to 1: correct them")


@dataclass(frozen=True, slots=True)
class MeasurementCheck:
    """A measurement and the throughput that the conversion predicts for its mix."""

    measurement: ThroughputMeasurement
    predicted: float

    @property
    def error(self) -> float:
        """Relative error of the predicted rate."""
        return self.predicted / self.measurement.rate - 1


def weakest_tag(measurements: Iterable[ThroughputMeasurement]) -> Tag:
    """Returns the tag of the least certain measurement."""
    return max((measurement.tag for measurement in measurements), key=_WEIGHT.__getitem__)


def joined_sources(measurements: Iterable[ThroughputMeasurement]) -> str:
    """Returns the distinct sources in one line."""
    return "; ".join(dict.fromkeys(measurement.source for measurement in measurements if measurement.source))
