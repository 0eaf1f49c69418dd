"""Estimates of the device time of measurements, from earlier measurements of the same option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cornserve.profiler.batch_means import MIN_COMPLETIONS
from cornserve.profiler.results import OptionResults

START_SECONDS = 1.0
"""Assumed for an option that has not been started yet: most take longer."""

LOAD_SECONDS = 2.0
"""The least time of the loads of a measurement."""


class BudgetTooSmallError(Exception):
    """The budget does not suffice for a measurement. The message is for users of the command line.

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
    """The device time that the measurement of a mix takes at least.

    Args:
        what: the option and the mix, for users.
        seconds: the start of the replicas and the completions for a first estimate of the throughput.
        devices: GPUs or slots of a replica.
    """

    what: str
    seconds: float
    devices: int

    @classmethod
    def estimate(cls, what: str, devices: int, earlier: OptionResults | None) -> MeasurementCost:
        """
        Args:
            earlier: results of the option, also under other conditions.
        """
        starts = () if earlier is None else earlier.startup
        alone = [] if earlier is None else [found.levels[0].seconds for found in earlier.measurements if found.levels]
        load = min(alone, default=0.0) * MIN_COMPLETIONS
        return cls(what, (median(starts) if starts else START_SECONDS) + max(load, LOAD_SECONDS), devices)

    @property
    def device_seconds(self) -> float:
        return self.seconds * self.devices


def check_budget(costs: Sequence[MeasurementCost], budget: float) -> None:
    """Raises `BudgetTooSmallError` if the part of a measurement does not suffice. The budget is divided equally.

    Args:
        budget: seconds of device time.
    """
    largest = max(costs, key=lambda cost: cost.device_seconds, default=None)
    if largest is not None and largest.device_seconds > budget / len(costs):
        raise BudgetTooSmallError(
            f"the budget of {budget:.4g} s of device time is too small: {len(costs)} measurements share it, and "
            f"{largest.what} takes at least {largest.device_seconds:.0f} s",
            needed=round(largest.device_seconds * len(costs) + 0.5),
        )
