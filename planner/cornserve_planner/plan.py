"""A plan: how many replicas of each deployment option, and the rate on each path [C §4.1]."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from cornserve_planner.document import Document, DocumentPart

NonNegative = Annotated[float, Field(ge=0)]


class Objective(StrEnum):
    """What is optimised. Ties go to fewer GPUs, then to fewer kinds of executors, where a search finds such a plan."""

    RATE = "rate"
    """Most requests per second within a budget."""
    GPUS = "gpus"
    """Fewest GPUs for a rate."""
    DOLLARS = "dollars"
    """Fewest dollars per hour for a rate [H §4.3]."""


class PathRate(DocumentPart):
    """Requests of a type per second on a path: x_{t,p} of [C App. B]."""

    type: str
    path: str
    rate: NonNegative


class Plan(Document):
    """`format: cornserve-planner/plan`. A solved problem: what to run, and how good it is known to be.

    Args:
        rate: requests per second that the paths' rates add up to. Where a rate was asked for, it is that one, or a few
            millionths less: solvers take so much for equal. It is never more than the replicas can serve.
        capacity: requests per second that these replicas can serve at most; the rate, where rate was the objective.
        gpus: GPUs of all replicas together, and `dollars` their price per hour, where every option has one.
        value: what the objective comes to.
        bound: no plan has a better value than this.
        relaxation: the value if fractions of replicas could run: what is lost to whole replicas is the difference.
        proven: whether the solver closed the gap between value and bound.
        ties_settled: whether it is known that no plan of this value has fewer GPUs, or as many and fewer kinds of
            executors. The search for one is bounded; of placements on nodes it is not made.
    """

    kind = "plan"

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
    ties_settled: bool
    solver: str
    solve_seconds: NonNegative

    @property
    def gap(self) -> float:
        """By which fraction of the bound the value may be off the optimum: 0 is proven optimal."""
        return abs(self.bound - self.value) / max(abs(self.bound), abs(self.value), 1e-12)

    @property
    def integrality_gap(self) -> float:
        """By which fraction of its value the plan could be better if fractions of replicas could run."""
        return abs(self.relaxation - self.value) / max(abs(self.value), 1e-12)

    def shares_of(self, request_type: str) -> dict[str, float]:
        """With which probability requests of a type take which path [C §5.3]."""
        rates = {entry.path: entry.rate for entry in self.rates if entry.type == request_type}
        total = sum(rates.values())
        return {path: rate / total for path, rate in rates.items()} if total else {}
