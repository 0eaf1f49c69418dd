"""The rate of a mix of request types that a plan serves."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum

from cornserve.app.plan import AppPlan
from cornserve_plan.plan import PlanCell

StepSeconds = Mapping[tuple[frozenset[str], str, frozenset[str]], float]
"""The seconds of a replica's time of a request, by the components of its type, the option, and those that it runs."""


def served_rate(plan: AppPlan, shares: Mapping[str, float], seconds: StepSeconds) -> float | None:
    """Returns the requests per second of a mix that the running cells serve: the first option is then fully used.

    Requests of a type are divided among the cells that serve it, in proportion to the rates of the cells.
    None if a time is unknown, or if no cell serves a type.
    """
    running = [cell for cell in plan.cells if cell.count]
    used: dict[tuple[int, str], float] = {}
    for name, share in shares.items():
        serving = {cell.gpus: cell.count * cell.rate for cell in running if name in cell.probabilities}
        if share and not serving:
            return None
        for cell in running:
            part = share * serving.get(cell.gpus, 0.0) / (fsum(serving.values()) or 1.0)
            if part and not _add_use(used, plan, name, cell, part, seconds):
                return None
    limits = [
        cell.count * cell.replicas[option] / used[cell.gpus, option]
        for cell in running
        for option in cell.replicas
        if used.get((cell.gpus, option))
    ]
    return min(limits, default=None)


def _add_use(
    used: dict[tuple[int, str], float], plan: AppPlan, name: str, cell: PlanCell, part: float, seconds: StepSeconds
) -> bool:
    """Adds the seconds that a part of all requests needs in cells of a size. Returns whether all of them are known."""
    kind = plan.types[name]
    for path, probability in zip(kind.paths, cell.probabilities[name], strict=True):
        for step in path.steps if probability else []:
            needed = seconds.get((frozenset(kind.components), step.option, frozenset(step.components)))
            if needed is None:
                return False
            key = cell.gpus, step.option
            used[key] = used.get(key, 0.0) + part * probability * needed
    return True
