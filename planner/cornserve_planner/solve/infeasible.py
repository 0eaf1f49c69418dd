"""Which constraint makes a problem infeasible, with the numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
    needs = []
    for limit in _limits(problem, budget):
        least, names = _smallest(problem, limit.of)
        if least > limit.most:
            each = ", ".join(f"{name} ({limit.told(limit.of(name))})" for name in names)
            needs.append(f"{limit.told(least)}: one replica each of {each}")
    why = "; or ".join(needs) or f"more than {budget} together, whichever options are taken"
    return f"the budget of {budget}", f"to serve every type once takes at least {why}"


@dataclass(frozen=True, slots=True)
class _Limit:
    """One of a budget's.

    Args:
        of: what a replica of an option takes of it.
        told: as errors say so much of it.
    """

    most: float
    of: Callable[[str], float]
    told: Callable[[float], str]


def _limits(problem: Problem, budget: Budget) -> list[_Limit]:
    option = problem.option
    limits = []
    if budget.gpus is not None:
        limits.append(_Limit(budget.gpus, lambda name: option[name].gpus, lambda n: f"{n:g} GPU{'s' * (n != 1)}"))
    for gpu, most in budget.gpus_of.items():
        limits.append(_Limit(most, partial(_gpus_of, problem, gpu), f"{{:g}} {gpu}".format))
    if budget.dollars is not None:
        limits.append(_Limit(budget.dollars, lambda name: problem.price(option[name]), "${:g} an hour".format))
    return limits


def why_rate_is_missed(
    problem: Problem, rate: float, budget: Budget, max_rate: Callable[[Problem, Budget, Solver], Plan]
) -> tuple[str, str]:
    """For a budget in which a rate cannot be reached."""
    best = max_rate(problem, budget, Solver(time_limit=10.0))
    return f"the budget of {budget}", f"{rate:g} requests/s are asked for, and at most {best.bound:.4g} can be served"


def _gpus_of(problem: Problem, gpu: str, name: str) -> int:
    option = problem.option[name]
    return option.gpus if option.gpu == gpu else 0


def _smallest(problem: Problem, weight: Callable[[str], float]) -> tuple[float, list[str]]:
    """The least with which every type has a path, and the options that take it, once each."""
    lp = pulp.LpProblem("smallest", pulp.LpMinimize)
    routes = [route for route in undominated(problem.usable) if problem.shares[route.type] > 0]
    names = dict.fromkeys(name for route in routes for name in route.seconds)
    runs = {name: lp.add_variable(f"r{index}", 0, 1, pulp.LpInteger) for index, name in enumerate(names)}
    lp.setObjective(pulp.lpSum(weight(name) * variable for name, variable in runs.items()))
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
    return sum(map(weight, needed)), [name for name in needed if weight(name)]
