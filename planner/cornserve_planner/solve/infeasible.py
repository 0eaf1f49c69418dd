"""Which constraint makes a problem infeasible, with the numbers."""

from __future__ import annotations

from collections.abc import Callable

import pulp

from cornserve_planner.errors import InfeasibleError
from cornserve_planner.plan import Plan
from cornserve_planner.problem import Problem
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.engine import Solver, run
from cornserve_planner.solve.program import undominated


def require_routes(problem: Problem) -> None:
    """Raises `InfeasibleError` if no path is left for a type that has requests, and says what keeps it from each."""
    served = {route.type for route in problem.usable}
    for name, share in problem.shares.items():
        if share > 0 and name not in served:
            reasons = [
                problem.excluded[option]
                for option in dict.fromkeys(
                    option for route in problem.routes if route.type == name for option in route.seconds
                )
                if option in problem.excluded
            ]
            why = "; ".join(reasons) if reasons else "no path with these options serves it"
            raise InfeasibleError(f"type {name} ({share:.1%} of the requests) has no path", why)


def why_nothing_is_served(problem: Problem, budget: Budget) -> tuple[str, str]:
    """For a budget in which not one replica of each option that some path needs can run."""
    fewest, replicas = _smallest(problem)
    listed = ", ".join(f"{name} ({problem.option[name].gpus})" for name in replicas)
    return (
        f"the budget of {budget}",
        f"to serve every type once takes at least {fewest} GPU{'s' * (fewest != 1)}: one replica each of {listed}",
    )


def why_rate_is_missed(
    problem: Problem, rate: float, budget: Budget, max_rate: Callable[[Problem, Budget, Solver], Plan]
) -> tuple[str, str]:
    """For a budget in which a rate cannot be reached."""
    best = max_rate(problem, budget, Solver(time_limit=10.0))
    return f"the budget of {budget}", f"{rate:g} requests/s are asked for, and at most {best.bound:.4g} can be served"


def _smallest(problem: Problem) -> tuple[int, list[str]]:
    """The fewest GPUs on which every type has a path, and the options that run on them, once each."""
    lp = pulp.LpProblem("smallest", pulp.LpMinimize)
    routes = [route for route in undominated(problem.usable) if problem.shares[route.type] > 0]
    names = dict.fromkeys(name for route in routes for name in route.seconds)
    runs = {name: lp.add_variable(f"r{index}", 0, 1, pulp.LpInteger) for index, name in enumerate(names)}
    lp.setObjective(pulp.lpSum(problem.option[name].gpus * variable for name, variable in runs.items()))
    taken = [lp.add_variable(f"x{index}", 0, 1, pulp.LpInteger) for index in range(len(routes))]
    for kind in {route.type for route in routes}:
        lp += pulp.lpSum(x for x, route in zip(taken, routes, strict=True) if route.type == kind) >= 1
    for x, route in zip(taken, routes, strict=True):
        for name in route.seconds:
            lp += x <= runs[name]
    run(lp, Solver(time_limit=10.0))
    needed = [
        option.name for option in problem.options if option.name in runs and round(runs[option.name].varValue or 0)
    ]
    return sum(problem.option[name].gpus for name in needed), needed
