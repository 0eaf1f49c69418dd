"""The least time of measurements, from earlier measurements of the same option."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from cornserve.profiler.errors import ProfilingError
from cornserve.profiler.results import OptionResults

LEAST_START_SECONDS = 1.0
"""Assumed for an option that has not been started yet: most take longer."""

LEAST_LOAD_SECONDS = 2.0
"""The least time of the loads of a measurement."""

LEAST_REQUESTS = 5
"""The least time of the loads, relative to a request: the first load then completes one in its part of the time."""


class BudgetTooSmallError(ProfilingError):
    """The budget does not suffice for the measurements. The message is for users of the command line.

    Args:
        shortage: the reason.
        needed: the seconds of device time that suffice.
    """

    def __init__(self, shortage: str, needed: int) -> None:
        super().__init__(f"{shortage}: give at least --budget {needed}s")
        self.shortage = shortage
        self.needed = needed


@dataclass(frozen=True, slots=True)
class MeasurementCost:
    """The time of the measurement of a mix, as far as it is known.

    Args:
        option: the name of the option.
        devices: GPUs or slots of a replica.
        start: the median seconds of its earlier starts.
        latency: the mean seconds of a request with one in flight.
        load: the mean seconds of the loads of its earlier measurements.
    """

    option: str
    devices: int
    start: float | None = None
    latency: float | None = None
    load: float | None = None

    @classmethod
    def estimate(cls, option: str, devices: int, earlier: OptionResults | None) -> MeasurementCost:
        """
        Args:
            earlier: results of the option, also under other conditions.
        """
        if earlier is None:
            return cls(option, devices)
        measured = [each for each in earlier.measurements if each.levels]
        return cls(
            option,
            devices,
            start=median(earlier.startup) if earlier.startup else None,
            latency=min((each.levels[0].seconds for each in measured), default=None),
            load=sum(each.load_seconds for each in measured) / len(measured) if measured else None,
        )

    @property
    def least_start(self) -> float:
        return LEAST_START_SECONDS if self.start is None else self.start

    @property
    def least_load(self) -> float:
        return max(LEAST_LOAD_SECONDS, LEAST_REQUESTS * (self.latency or 0.0))


def check_budget(costs: Sequence[MeasurementCost], budget: float) -> None:
    """Raises `BudgetTooSmallError` if the budget does not suffice for all measurements, however wide their intervals.

    Args:
        budget: seconds of device time.
    """
    starts = [cost.least_start * cost.devices for cost in starts_of(costs)]
    loads = [cost.least_load * cost.devices for cost in costs]
    needed = sum(starts) + sum(loads)
    if needed > budget:
        raise BudgetTooSmallError(
            f"the budget of {budget:.4g} s of device time is too small: starts take at least {sum(starts):.0f} s "
            f"(options: {len(starts)}), and measurements {sum(loads):.0f} s (mixes: {len(loads)})",
            needed=ceil(needed),
        )


def starts_of(costs: Iterable[MeasurementCost]) -> list[MeasurementCost]:
    """Returns the first measurement of each option, for which it is started."""
    first: dict[str, MeasurementCost] = {}
    for cost in costs:
        first.setdefault(cost.option, cost)
    return [*first.values()]
