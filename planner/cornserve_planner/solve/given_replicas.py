"""The plan of given replicas: the paths on which they serve the highest rate."""

from __future__ import annotations

from collections.abc import Mapping

from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Objective, Solution
from cornserve_planner.solve.capacity import capacity


def solve_replicas(problem: PlanningProblem, replicas: Mapping[str, int], bound: float = 0.0) -> Solution:
    """Returns the plan of replicas at their maximum rate, which is 0 if they do not serve all types.

    Args:
        bound: the rate of the best plan that is known.
    """
    rate, rates = capacity(problem, replicas)
    return Solution(
        objective=Objective.RATE,
        replicas=dict(replicas),
        rates=rates,
        rate=rate,
        capacity=rate,
        gpus=sum(problem.option[name].gpus * number for name, number in replicas.items()),
        dollars=problem.dollars(replicas),
        value=rate,
        bound=max(rate, bound),
        relaxation=max(rate, bound),
        proven=False,
        ties_settled=False,
        solver="highs",
        solve_seconds=0.0,
    )
