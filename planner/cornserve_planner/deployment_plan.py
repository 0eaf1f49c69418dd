"""The file that `cornserve plan --save` writes: instances of the model, each with its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from cornserve_planner.cells import Cell
from cornserve_planner.document import Document, DocumentPart
from cornserve_planner.mixture import Mixture
from cornserve_planner.model_document import Name
from cornserve_planner.plan import NonNegative, Plan


class InstanceGroup(DocumentPart):
    """A number of complete instances of the model that share one plan."""

    count: Annotated[int, Field(ge=1)]
    plan: Plan


class DeploymentPlan(Document):
    """`format: cornserve-planner/proposal`.

    Args:
        shares: the share of each request type that the plan assumes.
        target: requested requests per second; None if a GPU budget was given.
        rate: requests per second that all instances serve together.
        gpus: GPUs of all cells; a plan may leave GPUs of its cell idle.
        instances: the largest first.
    """

    kind = "proposal"

    model: Name
    shares: dict[str, NonNegative]
    target: NonNegative | None = None
    rate: NonNegative
    gpus: Annotated[int, Field(ge=0)]
    dollars: NonNegative | None = None
    instances: tuple[InstanceGroup, ...]

    @classmethod
    def from_mixture(
        cls,
        model: str,
        shares: Mapping[str, float],
        mixture: Mixture,
        cells: tuple[Cell, ...],
        target: float | None = None,
    ) -> DeploymentPlan:
        plans = {cell.gpus: cell.plan for cell in cells}
        counts = sorted(mixture.counts.items(), reverse=True)
        instances = tuple(
            InstanceGroup(count=count, plan=plan) for gpus, count in counts if (plan := plans[gpus]) is not None
        )
        return cls._from_instances(model, shares, mixture.rate, mixture.gpus, instances, target)

    @classmethod
    def from_plan(
        cls, model: str, shares: Mapping[str, float], plan: Plan, target: float | None = None
    ) -> DeploymentPlan:
        instances = (InstanceGroup(count=1, plan=plan),)
        return cls._from_instances(model, shares, plan.capacity, plan.gpus, instances, target)

    @classmethod
    def _from_instances(
        cls,
        model: str,
        shares: Mapping[str, float],
        rate: float,
        gpus: int,
        instances: tuple[InstanceGroup, ...],
        target: float | None,
    ) -> DeploymentPlan:
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
