"""The costs of replicas and cells, by the prices of their GPUs or slots."""

from __future__ import annotations

from collections.abc import Iterable

from cornserve.app.plan import AppCell, AppPlan
from cornserve.app.record import GroupStatus
from cornserve.app.spec import AppSpec
from cornserve.gpu_prices import GpuPrices

Cost = float | None
"""Dollars per hour. None: the price of a GPU or slot is unknown."""


def total_cost(costs: Iterable[Cost]) -> Cost:
    """Returns the sum of costs, or None if one of them is unknown."""
    known = 0.0
    for cost in costs:
        if cost is None:
            return None
        known += cost
    return known


def replica_costs(spec: AppSpec, groups: Iterable[GroupStatus], prices: GpuPrices) -> dict[str, Cost]:
    """Returns the cost of each replica of an app, by id."""
    return {
        replica.id: _cost(group.gpus, prices.of(_gpu_type(spec, group)))
        for group in groups
        for replica in group.replicas
    }


def cell_cost(spec: AppSpec, plan: AppPlan, cell: AppCell, prices: GpuPrices) -> Cost:
    options = {name: plan.options[name] for name in cell.replicas}
    return total_cost(
        _cost(option.gpus * cell.replicas[name], prices.of(option.gpu_type or spec.gpu_type_of("")))
        for name, option in options.items()
    )


def _gpu_type(spec: AppSpec, group: GroupStatus) -> str | None:
    """Returns the type of the GPUs of a group. All options of a group have the same type."""
    option = None if spec.plan is None else spec.plan.options.get(group.option.partition(",")[0])
    return (option.gpu_type if option is not None else None) or spec.gpu_type_of(group.executor)


def _cost(gpus: int, price: float | None) -> Cost:
    if gpus == 0:
        return 0.0
    return None if price is None else gpus * price
