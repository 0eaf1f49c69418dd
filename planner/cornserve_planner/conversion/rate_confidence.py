"""The confidence interval of the rate that a plan serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from cornserve_planner.conversion.size_costs import Draws
from cornserve_planner.model.graph import PathStep, RequestType
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Solution


def rate_draws(
    problem: PlanningProblem,
    types: Iterable[RequestType],
    drawn: Callable[[RequestType, PathStep], Draws],
    plan: Solution,
) -> Draws:
    """Returns the estimated capacity of a plan in requests per second, followed by random draws.

    The gateway selects paths with the plan's probabilities, so that the rate at which the first option is used as much
    as the plan allows limits the plan.

    Args:
        drawn: returns the estimated seconds of a step, followed by random draws.
    """
    kinds = {kind.name: kind for kind in types}
    steps = {(path.type, path.name): path.steps for path in problem.paths}
    work: dict[str, Draws] = {}
    for entry in plan.rates:
        for step in steps[entry.type, entry.path]:
            seconds = entry.rate / plan.rate * drawn(kinds[entry.type], step)
            available = plan.replicas[step.option] * problem.max_utilization.get(step.option, 1.0)
            work[step.option] = work.get(step.option, 0) + seconds / available
    return 1 / np.max(list(work.values()), axis=0)
