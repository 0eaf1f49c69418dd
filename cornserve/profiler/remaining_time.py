"""The expected time of measurements, from the times of those that have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from typing import Self

from cornserve.profiler.cost_estimate import MeasurementCost, starts_of


class StepKind(Enum):
    """A kind of step. The values are the seconds that are expected until one has ended."""

    START = 15.0
    """The start of the replicas of an option."""
    LOADS = 30.0
    """The loads of a mix."""


@dataclass(frozen=True, slots=True)
class ProfilingStep:
    """
    Args:
        known: the seconds of earlier ones of the option.
        devices: GPUs or slots of a replica.
    """

    kind: StepKind
    known: float | None
    devices: int


@dataclass(slots=True)
class RemainingTime:
    """The time of the steps that have not ended, by the times of those that have.

    Args:
        steps: the current step, and all later ones.
        budget: seconds of device time until the end.
    """

    steps: list[ProfilingStep]
    budget: float
    _ended: dict[StepKind, list[float]] = field(default_factory=lambda: {kind: [] for kind in StepKind})

    @classmethod
    def of(cls, costs: Sequence[MeasurementCost], budget: float) -> Self:
        """
        Args:
            costs: those of the missing measurements, in order.
        """
        return cls([*_steps(costs)], budget)

    def end_step(self, seconds: float) -> None:
        """Ends the current step, which has taken this time."""
        step = self.steps.pop(0)
        self._ended[step.kind].append(seconds)
        self.budget -= seconds * step.devices

    def seconds(self, elapsed: float) -> float:
        """Returns the expected seconds until the end, which the budget limits.

        Args:
            elapsed: seconds since the begin of the current step.
        """
        expected = [self._expected(step) for step in self.steps]
        device_seconds = sum(each * step.devices for each, step in zip(expected, self.steps, strict=True))
        limit = min(1.0, max(0.0, self.budget) / device_seconds) if device_seconds else 1.0
        current, later = sum(expected[:1]) * limit, sum(expected[1:]) * limit
        return max(0.0, current - elapsed) + later

    def limit(self, elapsed: float) -> float:
        """Returns the seconds until the budget is spent.

        Args:
            elapsed: seconds since the begin of the current step.
        """
        return max(0.0, self.budget / min(step.devices for step in self.steps) - elapsed)

    @property
    def start_limit(self) -> float:
        """The seconds after which the start that is the current step is given up: all that are left."""
        return max(1.0, self.budget / self.steps[0].devices)

    @property
    def load_limit(self) -> float:
        """The seconds for the loads that are the current step: the mixes share what later starts leave.

        If these need all of it, the mixes share all of it. Later ones may be interrupted, but the next attempt has
        fewer mixes to measure.
        """
        left = max(0.0, self.budget / self.steps[0].devices)
        mixes = sum(step.kind is StepKind.LOADS for step in self.steps)
        starts = sum(self._expected(step) for step in self.steps if step.kind is StepKind.START)
        return (left - starts if left > starts else left) / mixes

    def _expected(self, step: ProfilingStep) -> float:
        return median(self._ended[step.kind] or [step.kind.value]) if step.known is None else step.known


def _steps(costs: Sequence[MeasurementCost]) -> Iterator[ProfilingStep]:
    started = starts_of(costs)
    for cost in costs:
        if cost in started:
            yield ProfilingStep(StepKind.START, cost.start, cost.devices)
            started.remove(cost)
        yield ProfilingStep(StepKind.LOADS, cost.load, cost.devices)
