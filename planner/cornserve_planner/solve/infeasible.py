"""Names the constraint that makes a problem infeasible, with numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pulp

from cornserve_planner.errors import InfeasibleError
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Solution
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.dominance import undominated
from cornserve_planner.solve.solver import SolverSettings, solve_program

AFTER_LOSS = " after the loss of a replica"


def require_paths(problem: PlanningProblem) -> None:
    """Raises `InfeasibleError` with the reasons if a type that has requests has no usable path."""
    served = {path.type for path in problem.usable}
    for name, share in problem.shares.items():
        if share > 0 and name not in served:
            reasons = [
                problem.excluded[option]
                for option in dict.fromkeys(
                    option for path in problem.paths if path.type == name for option in path.seconds
                )
                if option in problem.excluded
            ]
            why = "; ".join(reasons) if reasons else "none of its paths uses only these options"
            raise InfeasibleError(f"type {name} ({share:.1%} of the requests) has no path", why)


def require_budget(problem: PlanningProblem, budget: Budget) -> None:
    """Raises `InfeasibleError` if the budget does not allow one replica of each option on some set of paths.

    The seconds of the paths do not matter.
    """
    if any(_smallest(problem, limit.weight)[0] > limit.most for limit in _limits(problem, budget)):
        raise InfeasibleError(*explain_empty_plan(problem, budget, survive=False))


def explain_empty_plan(problem: PlanningProblem, budget: Budget, *, survive: bool) -> tuple[str, str]:
    """Explains a budget that does not allow one replica of each option on some set of paths."""
    needs = []
    for limit in _limits(problem, budget):
        least, names = _smallest(problem, limit.weight)
        if least > limit.most:
            each = ", ".join(f"{name} ({limit.describe(limit.weight(name))})" for name in names)
            needs.append(f"{limit.describe(least)}: one replica each of {each}")
    if needs:
        why = f"{'more than' if survive else 'at least'} {'; or '.join(needs)}"
    else:
        why = f"more than {budget} for any choice of options"
    return f"the budget of {budget}", f"to serve every type{AFTER_LOSS if survive else ''}, a plan needs {why}"


@dataclass(frozen=True, slots=True)
class _Limit:
    """One limit of a budget.

    Args:
        weight: returns the part of the limit that a replica of an option uses.
        describe: formats an amount for messages.
    """

    most: float
    weight: Callable[[str], float]
    describe: Callable[[float], str]


def _limits(problem: PlanningProblem, budget: Budget) -> list[_Limit]:
    option = problem.option
    limits = []
    if budget.gpus is not None:
        limits.append(_Limit(budget.gpus, lambda name: option[name].gpus, lambda n: f"{n:g} GPU{'s' * (n != 1)}"))
    for gpu, most in budget.gpus_of.items():
        limits.append(_Limit(most, partial(_gpus_of, problem, gpu), f"{{:g}} {gpu}".format))
    if budget.dollars is not None:
        limits.append(_Limit(budget.dollars, lambda name: problem.price(option[name]), "${:g} an hour".format))
    return limits


def explain_missed_rate(rate: float, budget: Budget, best: Solution, *, survive: bool) -> tuple[str, str]:
    """Explains a budget that does not allow a rate. `best` is the plan with the highest rate within the budget."""
    return (
        f"the budget of {budget}",
        f"{rate:g} requests/s are requested, but at most {best.bound:.4g} can be served{AFTER_LOSS if survive else ''}",
    )


def _gpus_of(problem: PlanningProblem, gpu: str, name: str) -> int:
    option = problem.option[name]
    return option.gpus if option.gpu == gpu else 0


def _smallest(problem: PlanningProblem, weight: Callable[[str], float]) -> tuple[float, list[str]]:
    """Returns the minimum weight with which every type has a path, and the options of that solution, once each."""
    lp = pulp.LpProblem("smallest", pulp.LpMinimize)
    paths = [path for path in undominated(problem.usable) if problem.shares[path.type] > 0]
    names = dict.fromkeys(name for path in paths for name in path.seconds)
    runs = {name: lp.add_variable(f"r{index}", 0, 1, pulp.LpInteger) for index, name in enumerate(names)}
    lp.setObjective(pulp.lpSum(weight(name) * variable for name, variable in runs.items()))
    taken = [lp.add_variable(f"x{index}", 0, 1, pulp.LpInteger) for index in range(len(paths))]
    for kind in {path.type for path in paths}:
        lp += pulp.lpSum(x for x, path in zip(taken, paths, strict=True) if path.type == kind) >= 1
    for x, path in zip(taken, paths, strict=True):
        for name in path.seconds:
            lp += x <= runs[name]
    solve_program(lp, SolverSettings(time_limit=10.0))
    needed = [
        option.name for option in problem.options if option.name in runs and round(runs[option.name].varValue or 0)
    ]
    return sum(map(weight, needed)), [name for name in needed if weight(name)]
