"""What to run: instances of the model, each with its plan. The document that `cornserve plan --save` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from cornserve_planner.cells import Cell
from cornserve_planner.document import Document, Part
from cornserve_planner.mixture import Mixture
from cornserve_planner.model import Name
from cornserve_planner.plan import NonNegative, Plan


class Instances(Part):
    """So many complete instances of the model, each with this plan."""

    count: Annotated[int, Field(ge=1)]
    plan: Plan


class Proposal(Document):
    """`format: cornserve-planner/proposal`.

    Args:
        shares: of the request types for which it was made.
        target: requests per second that were asked for; None where a budget was.
        rate: requests per second that all instances together serve.
        gpus: of the cells; their plans may leave some idle.
        instances: the largest first.
    """

    kind = "proposal"

    model: Name
    shares: dict[str, NonNegative]
    target: NonNegative | None = None
    rate: NonNegative
    gpus: Annotated[int, Field(ge=0)]
    dollars: NonNegative | None = None
    instances: tuple[Instances, ...]

    @classmethod
    def of_mixture(
        cls,
        model: str,
        shares: Mapping[str, float],
        mixture: Mixture,
        cells: tuple[Cell, ...],
        target: float | None = None,
    ) -> Proposal:
        plans = {cell.gpus: cell.plan for cell in cells}
        counts = sorted(mixture.counts.items(), reverse=True)
        found = tuple(Instances(count=count, plan=plan) for gpus, count in counts if (plan := plans[gpus]) is not None)
        return cls._of(model, shares, mixture.rate, mixture.gpus, found, target)

    @classmethod
    def of_plan(cls, model: str, shares: Mapping[str, float], plan: Plan, target: float | None = None) -> Proposal:
        return cls._of(model, shares, plan.capacity, plan.gpus, (Instances(count=1, plan=plan),), target)

    @classmethod
    def _of(
        cls,
        model: str,
        shares: Mapping[str, float],
        rate: float,
        gpus: int,
        instances: tuple[Instances, ...],
        target: float | None,
    ) -> Proposal:
        prices = [entry.count * entry.plan.dollars for entry in instances if entry.plan.dollars is not None]
        return cls(
            model=model,
            shares=dict(shares),
            target=target,
            rate=rate,
            gpus=gpus,
            dollars=sum(prices) if len(prices) == len(instances) else None,
            instances=instances,
        )
