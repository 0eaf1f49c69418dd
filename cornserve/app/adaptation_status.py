"""The adaptation of an app to its load: a part of the app's status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from cornserve.app.plan import AppPlan


class _StatusPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may have written more fields


class CellCount(_StatusPart):
    """A number of cells of one size."""

    gpus: int = Field(ge=1)
    """GPUs of a cell."""
    count: int = Field(ge=1)
    """The number of cells."""


class MixtureProposal(_StatusPart):
    """Other numbers of cells, which wait for an approval."""

    generation: int = Field(ge=0)
    """The generation that the proposal changes."""
    cells: list[CellCount] = Field(min_length=1, max_length=64)
    """The cells to run."""
    target: float = Field(ge=0)
    """The requests per second for which the cells are chosen."""
    reason: str = Field(max_length=512)
    """Why the load needs other cells."""
    gpus_now: int = Field(ge=0)
    """GPUs of the running cells."""
    gpus: int = Field(ge=0)
    """GPUs of the proposed cells."""
    rate_now: float = Field(ge=0)
    """Requests per second that the running cells serve."""
    rate: float = Field(ge=0)
    """Requests per second that the proposed cells serve."""

    @classmethod
    def of(cls, generation: int, plan: AppPlan, counts: Mapping[int, int], target: float, reason: str) -> Self:
        """Returns the proposal to change the running cells of a plan."""
        proposed = plan.with_counts(counts, target)
        return cls(
            generation=generation,
            cells=[CellCount(gpus=size, count=count) for size, count in sorted(proposed.counts.items())],
            target=target,
            reason=reason,
            gpus_now=plan.gpus,
            gpus=proposed.gpus,
            rate_now=round(plan.rate, 3),
            rate=round(proposed.rate, 3),
        )

    @property
    def counts(self) -> dict[int, int]:
        """The numbers of cells by GPUs of a cell."""
        return {cell.gpus: cell.count for cell in self.cells}


class PlanProposal(_StatusPart):
    """Another plan for a shifted mix, which waits for an approval."""

    generation: int = Field(ge=0)
    """The generation that the proposal changes."""
    plan: AppPlan
    """The plan."""
    reason: str = Field(max_length=512)
    """Why the mix needs another plan."""
    gpus_now: int = Field(ge=0)
    """GPUs of the running cells."""
    gpus: int = Field(ge=0)
    """GPUs of the plan."""
    rate_now: float = Field(ge=0)
    """Requests per second of the observed mix that the running cells serve."""
    rate: float = Field(ge=0)
    """Requests per second of the observed mix that the plan serves."""
    starts: int = Field(ge=0)
    """Number of replicas that start."""
    stops: int = Field(ge=0)
    """Number of replicas that stop."""
    obstacle: str = Field(default="", max_length=1024)
    """Why the plan cannot replace the running one. Empty: it can."""

    @classmethod
    def of(
        cls, generation: int, running: AppPlan, plan: AppPlan, rate_now: float, reason: str, obstacle: str = ""
    ) -> Self:
        """Returns the proposal to replace the running plan.

        Args:
            rate_now: the requests per second of the observed mix that the running cells serve.
            obstacle: why the plan cannot replace the running one.
        """
        before, after = _replicas(running), _replicas(plan)
        return cls(
            generation=generation,
            plan=plan,
            reason=reason,
            gpus_now=running.gpus,
            gpus=plan.gpus,
            rate_now=round(rate_now, 3),
            rate=round(plan.rate, 3),
            starts=(after - before).total(),
            stops=(before - after).total(),
            obstacle=obstacle,
        )


def _replicas(plan: AppPlan) -> Counter[tuple[str, frozenset[tuple[str, int]], str]]:
    """Returns the replicas of each option in each cell. Cells with other replicas have other executors."""
    return Counter(
        {
            (name, frozenset(cell.replicas.items() if name else ()), option): count
            for name, cell in plan.running_cells
            for option, count in cell.replicas.items()
        }
    )


class TypeShare(_StatusPart):
    """The share of one request type."""

    type: str = Field(max_length=200)
    """The type. Empty: the requests of no type of the plan."""
    planned: float = Field(ge=0, le=1)
    """The planned share of all requests."""
    observed: float = Field(ge=0, le=1)
    """The observed share of all requests."""


class MixShift(_StatusPart):
    """The request types have other shares than planned: the plan's cells may not serve its rates."""

    distance: float = Field(ge=0, le=1)
    """The share of requests that have another type than planned."""
    shares: list[TypeShare] = Field(max_length=257)
    """The shares of all types."""


class TypeRate(_StatusPart):
    """The requests per second of one request type."""

    type: str = Field(max_length=200)
    """The type. Empty: the requests of no type of the plan."""
    planned: float = Field(ge=0)
    """The requests per second that the running cells serve."""
    observed: float = Field(ge=0)
    """The requests per second that arrive, to two digits."""


class AutoscaledLoad(_StatusPart):
    """The load of an executor that is autoscaled."""

    name: str = Field(max_length=63)
    """The name of the executor."""
    unit: Literal["tokens", "requests"]
    """The unit of the load."""
    load: float | None = Field(default=None, ge=0)
    """The load per second, to two digits: the larger mean of a short and a long time. Absent while it is not known."""
    capacity: float = Field(ge=0)
    """The load per second that one replica takes."""


class AdaptationStatus(_StatusPart):
    """The adaptation of the app to its load."""

    proposal: MixtureProposal | None = None
    """Other numbers of cells, which wait for an approval."""
    plan_proposal: PlanProposal | None = None
    """Another plan, which waits for an approval. It precedes other numbers of cells."""
    mix_shift: MixShift | None = None
    """The difference between the observed and the planned shares of the request types, if it is large."""
    rates: list[TypeRate] = Field(default_factory=list, max_length=257)
    """The rates of the request types of a planned app."""
    executors: list[AutoscaledLoad] = Field(default_factory=list, max_length=16)
    """The loads of the executors that are autoscaled."""

    def pending_proposal(self, generation: int) -> MixtureProposal | PlanProposal | None:
        """Returns the change of this generation's plan that waits for an approval."""
        proposals = (self.plan_proposal, self.proposal)
        return next((each for each in proposals if each is not None and each.generation == generation), None)
