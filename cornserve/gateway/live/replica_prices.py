"""The prices of replicas and cells by those of their GPUs or slots, and the costs of requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from typing_extensions import TypedDict

from cornserve.app.plan import AppCell, AppPlan
from cornserve.app.record import GroupStatus
from cornserve.app.spec import AppSpec
from cornserve.gpu_prices import GpuPrices

Cost = float | None
"""Dollars of a request, or dollars per hour of replicas and cells. None: the price of a GPU or slot is unknown."""


class RequestCost(TypedDict):
    """The cost of a request in its `usage`, with `include_cost`."""

    gpu_seconds: float
    dollars: Cost


def request_cost(
    seconds: Mapping[str, float], spec: AppSpec, groups: Iterable[GroupStatus], prices: GpuPrices
) -> RequestCost:
    """Returns the cost of the time in which the invocations of a request computed.

    Args:
        seconds: time of replicas by executor group.
        groups: the groups of the app. A group that has left meanwhile has one GPU, of an unknown price.
    """
    known = {group.key: group for group in groups}
    spent, costs = 0.0, list[Cost]()
    for key, each in seconds.items():
        group = known.get(key)
        gpu_seconds = each * (1 if group is None else group.gpus)
        spent += gpu_seconds
        costs.append(_cost(gpu_seconds / 3600, None if group is None else group_price(spec, group, prices)))
    return {"gpu_seconds": spent, "dollars": total_cost(costs) if prices.by_type else None}


def total_cost(costs: Iterable[Cost]) -> Cost:
    """Returns the sum of costs, or None if one of them is unknown."""
    known = 0.0
    for cost in costs:
        if cost is None:
            return None
        known += cost
    return known


def replica_costs(spec: AppSpec, groups: Iterable[GroupStatus], prices: GpuPrices) -> dict[str, Cost]:
    """Returns the cost of each replica of an app that occupies GPUs, by id."""
    return {
        replica.id: _cost(group.gpus, group_price(spec, group, prices))
        for group in groups
        for replica in group.occupying
    }


def cell_cost(spec: AppSpec, plan: AppPlan, cell: AppCell, prices: GpuPrices) -> Cost:
    options = {name: plan.options[name] for name in cell.replicas}
    return total_cost(
        _cost(option.gpus * cell.replicas[name], prices.of(option.gpu_type or spec.gpu_type_of("")))
        for name, option in options.items()
    )


def group_price(spec: AppSpec, group: GroupStatus, prices: GpuPrices) -> Cost:
    """Returns the dollars per hour of one GPU or slot of a group."""
    return prices.of(_gpu_type(spec, group))


def _gpu_type(spec: AppSpec, group: GroupStatus) -> str | None:
    """Returns the type of the GPUs of a group. All options of a group have the same type."""
    option = None if spec.plan is None else spec.plan.options.get(group.option.partition(",")[0])
    return (option.gpu_type if option is not None else None) or spec.gpu_type_of(group.executor)


def _cost(gpus: float, price: float | None) -> Cost:
    """Returns the cost of GPUs, or of GPU hours."""
    if gpus == 0:
        return 0.0
    return None if price is None else gpus * price
