"""A solution of a planning problem: the replicas of each deployment option, and the rate on each path [C §4.1]."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from cornserve_plan.fields import NonNegative
from cornserve_planner.files.document import DocumentPart


class Objective(StrEnum):
    """The quantity that a plan optimizes.

    Ties are broken by fewer GPUs, then by fewer kinds of executors, then by fewer components in all replicas together,
    as far as a bounded search finds such a plan.
    """

    RATE = "rate"
    """Maximum requests per second within a budget."""
    GPUS = "gpus"
    """Fewest GPUs for a rate."""
    DOLLARS = "dollars"
    """Fewest dollars per hour for a rate [H §4.3]."""


class PathRate(DocumentPart):
    """Requests per second of a type on a path: x_{t,p} of [C App. B]."""

    type: str
    path: str
    rate: NonNegative


class Solution(DocumentPart):
    """A solution of a planning problem, with its bound.

    Args:
        rate: sum of the rates on all paths. For a target rate, the target minus a few millionths that solvers tolerate;
            never more than the capacity.
        capacity: maximum requests per second that the replicas can serve, before a loss. For the objective `rate` and
            plans that survive no loss, equal to it.
        gpus: GPUs of all replicas. `dollars` is their price per hour, if every option has one.
        value: value of the objective.
        bound: no plan has a better value than this.
        relaxation: value with fractional replicas. The difference is the cost of whole replicas.
        proven: whether the solver closed the gap between value and bound.
        survives: whether `rate` is also served after the loss of any one replica.
        ties_settled: whether no plan of the same value needs fewer GPUs, or the same number and fewer kinds of
            executors, or the same kinds and fewer components. The search is bounded.
    """

    objective: Objective
    replicas: dict[str, Annotated[int, Field(ge=1)]]
    rates: tuple[PathRate, ...]
    rate: NonNegative
    capacity: NonNegative
    gpus: Annotated[int, Field(ge=0)]
    dollars: NonNegative | None = None
    value: NonNegative
    bound: NonNegative
    relaxation: NonNegative
    proven: bool
    survives: bool = False
    ties_settled: bool
    solver: str
    solve_seconds: NonNegative

    @property
    def gap(self) -> float:
        """Relative distance between value and bound: 0 means proven optimal."""
        return abs(self.bound - self.value) / max(abs(self.bound), abs(self.value), 1e-12)

    @property
    def integrality_gap(self) -> float:
        """Relative improvement that fractional replicas would allow."""
        return abs(self.relaxation - self.value) / max(abs(self.value), 1e-12)

    def shares_of(self, request_type: str) -> dict[str, float]:
        """Returns the probability of each path for requests of a type [C §5.3]."""
        rates = {entry.path: entry.rate for entry in self.rates if entry.type == request_type}
        total = sum(rates.values())
        return {path: rate / total for path, rate in rates.items()} if total else {}
