"""Checks what the plan of a file serves under another mix of request types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cornserve_planner.errors import InfeasibleError, InvalidInputError
from cornserve_planner.model.graph import RequestType
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import PlannedCell, mean_seconds
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.workload.document import Workload

FULL = 1e-6
"""Options within this relative distance of the highest utilization limit the plan."""


@dataclass(frozen=True, slots=True)
class CellDrift:
    """The running cells of one size.

    Args:
        utilization: by option, the fraction of its replicas' time that is used when the plan serves its new rate.
        limiting: the options that prevent a higher rate; empty if those of other cells do.
    """

    cell: PlannedCell
    utilization: Mapping[str, float]
    limiting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanDrift:
    """
    Args:
        shares: the new shares of the types that the plan serves; their sum is 1.
        refused: the share of each type that no running cell serves.
        rate: requests per second that the plan serves with its probabilities.
        best_rate: requests per second with the best probabilities for the new mix, and the same replicas.
    """

    file: PlanFile
    shares: Mapping[str, float]
    refused: Mapping[str, float]
    rate: float
    best_rate: float
    cells: tuple[CellDrift, ...]

    @property
    def of_target(self) -> float | None:
        """The fraction of the target that is still served; None without a target."""
        return None if not self.file.target else self.rate / self.file.target

    def as_document(self) -> dict[str, Any]:
        return {
            "planned_rate": self.file.rate,
            "target": self.file.target,
            "rate": self.rate,
            "of_target": self.of_target,
            "best_rate": self.best_rate,
            "shares": dict(self.shares),
            "refused": dict(self.refused),
            "cells": [
                {
                    "count": entry.cell.count,
                    "gpus": entry.cell.gpus_of,
                    "utilization": dict(entry.utilization),
                    "limiting": entry.limiting,
                }
                for entry in self.cells
            ],
        }


def check_drift(file: PlanFile, workload: Workload) -> PlanDrift:
    """Computes the rate of a plan under the mix of another workload.

    The gateway divides requests among the running cells in proportion to their planned rates.

    Raises `InfeasibleError` if the plan serves none of the workload's types.
    """
    shares, refused = _shares(file, workload)
    running = [cell for cell in file.cells if cell.count]
    demands = [_demand(file, cell, running, shares) for cell in running]
    limits = [
        {
            name: cell.count * cell.replicas[name] * file.options[name].max_utilization / seconds
            for name, seconds in demand.items()
        }
        for cell, demand in zip(running, demands, strict=True)
    ]
    rate = min(limit for cell in limits for limit in cell.values())
    drifts = tuple(
        CellDrift(
            cell,
            {name: rate * demand.get(name, 0.0) / (cell.count * number) for name, number in cell.replicas.items()},
            tuple(name for name, most in limit.items() if most <= rate * (1 + FULL)),
        )
        for cell, demand, limit in zip(running, demands, limits, strict=True)
    )
    problem = replace(file.problem, shares={name: shares.get(name, 0.0) for name in file.types})
    best = math.fsum(cell.count * capacity(problem, cell.replicas)[0] for cell in running)
    return PlanDrift(file, shares, refused, rate, max(rate, best), drifts)


def _shares(file: PlanFile, workload: Workload) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the shares of the served types among themselves, and the shares of the others."""
    served: dict[str, float] = {}
    refused: dict[str, float] = {}
    for kind, share in workload.shares.items():
        if share:
            name = _name(file, kind)
            route = name is not None and any(cell.count and name in cell.probabilities for cell in file.cells)
            group = served if route else refused
            group[name or kind.name] = group.get(name or kind.name, 0.0) + share
    total = math.fsum(served.values())
    if not total:
        raise InfeasibleError("types", f"the running cells serve none of {', '.join(refused)}")
    return {name: share / total for name, share in served.items()}, refused


def _name(file: PlanFile, kind: RequestType) -> str | None:
    """Returns the type of the file with the same components, preferably the one with the same name.

    Without one, returns the default type.
    """
    same = [name for name, entry in file.types.items() if frozenset(entry.components) == kind.components]
    if kind.name in file.types and kind.name not in same:
        raise InvalidInputError(f"types.{kind.name}", "has other components in the plan file: rename one of them")
    return kind.name if kind.name in same else next(iter(same), file.default_type)


def _demand(
    file: PlanFile, cell: PlannedCell, running: list[PlannedCell], shares: Mapping[str, float]
) -> dict[str, float]:
    """Returns, by option, the seconds that the mean request of all cells needs in cells of one size."""
    parts: dict[str, float] = {}
    for name, share in shares.items():
        weights = {other.gpus: other.count * other.rate for other in running if name in other.probabilities}
        parts[name] = share * weights.get(cell.gpus, 0.0) / math.fsum(weights.values())
    kinds = {name: kind.model_copy(update={"share": parts.get(name, 0.0)}) for name, kind in file.types.items()}
    return mean_seconds(kinds, cell.probabilities)
