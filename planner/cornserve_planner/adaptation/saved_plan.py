"""Adapts the plan of a file to a new target rate, with the order of starts and stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cornserve_planner.adaptation.mixture import Adaptation, adapt_mixture
from cornserve_planner.adaptation.order import AdaptationOrder, order_adaptation
from cornserve_planner.adaptation.order_search import StartableCell
from cornserve_planner.errors import InvalidInputError, require_positive
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import PlannedCell, largest_loss

UNKNOWN_STARTUP = 120.0
"""Assumed seconds until a replica accepts requests, if the file contains no start-up time."""


@dataclass(frozen=True)
class AdaptedPlan:
    """
    Args:
        file: the adapted plan.
        free: GPUs by type that are free at the beginning.
        assumed: the seconds assumed for options of starting cells whose start-up time is unknown.
    """

    before: PlanFile
    file: PlanFile
    change: Adaptation
    order: AdaptationOrder
    free: Mapping[str, int]
    assumed: Mapping[str, float]

    def as_document(self) -> dict[str, Any]:
        """Returns the fields of the adapted plan and of the adaptation."""
        return {
            **self.file.as_document(),
            "starts": dict(self.change.starts),
            "stops": dict(self.change.stops),
            "free": dict(self.free),
            "steps": [
                {"seconds": step.seconds, "stops": dict(step.stops), "starts": dict(step.starts), "rate": step.rate}
                for step in self.order.steps
            ],
            "required": self.order.required,
            "lost": self.order.lost,
            "order_proven": self.order.proven,
            "assumed_startup": dict(self.assumed),
        }


def adapt_plan(file: PlanFile, rate: float, free: Mapping[str, int] | None = None) -> AdaptedPlan:
    """Changes the running cells of a file to the mixture for a rate with the fewest GPUs, then the fewest changes.

    Throughout, the cells serve the smaller of the old and the new target. Without an old target, its rate counts.
    A plan that is made for the loss of a replica serves the rate after this loss.

    Args:
        free: GPUs by type that are free at the beginning. Default: the GPUs that the new plan needs in addition.

    Raises `InfeasibleError` if the free GPUs are not enough.
    """
    require_positive("--rate", rate)
    change = adapt_mixture(file.solved_cells, file.counts, rate + largest_loss(file.cells))
    adapted = file.with_counts(change.mixture.counts, rate)
    if free is None:
        more = {name: number - file.total_gpus.get(name, 0) for name, number in adapted.total_gpus.items()}
        free = {name: number for name, number in more.items() if number > 0}
    known = {name for cell in file.cells for name in cell.gpus_of}
    for name in free:
        if name not in known:
            raise InvalidInputError("--free", f"{name!r} is not a GPU type of the plan: use {', '.join(sorted(known))}")
    starting = [cell for cell in file.cells if cell.gpus in change.starts]
    assumed = _assumed_startups(file, starting)
    cells = {cell.gpus: StartableCell(cell.gpus_of, cell.rate, _startup(file, cell, assumed)) for cell in file.cells}
    required = min(rate, file.rate if file.target is None else file.target)
    return AdaptedPlan(
        file, adapted, change, order_adaptation(cells, file.counts, change, required, free), free, assumed
    )


def _assumed_startups(file: PlanFile, starting: list[PlannedCell]) -> dict[str, float]:
    known = [option.startup for option in file.options.values() if option.startup is not None]
    longest = max(known, default=UNKNOWN_STARTUP)
    return {name: longest for cell in starting for name in cell.replicas if file.options[name].startup is None}


def _startup(file: PlanFile, cell: PlannedCell, assumed: Mapping[str, float]) -> float:
    """Returns the seconds until all replicas of a cell accept requests."""
    return max(assumed.get(name, file.options[name].startup or 0.0) for name in cell.replicas)
