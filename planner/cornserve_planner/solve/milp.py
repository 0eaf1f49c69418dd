"""Plans for a problem without topology: most requests within a budget, or least cost for a rate [C §4.2, App. B].

What solvers return is exact to their tolerances only. So only the whole numbers of replicas are taken from them; what
these replicas can serve is then computed by a linear program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cornserve_planner.errors import InfeasibleError, InvalidInputError, NoPlanFoundError
from cornserve_planner.plan import Objective, PathRate, Plan
from cornserve_planner.problem import Problem, Route
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.engine import Outcome, Solver, run
from cornserve_planner.solve.infeasible import require_routes, why_nothing_is_served, why_rate_is_missed
from cornserve_planner.solve.program import Program

SLACK = 1e-7
"""By which fraction a plan may miss a rate: what solvers take for equal."""
TIE_NODES = 100
"""Of the tree that is searched to break ties: more than problems with a dozen options have, and less than a second of
those with thirty. A plan's value does not depend on it."""
NEGLIGIBLE = 1e-9
"""Of a type's rate: paths with less are not used."""


def max_rate(problem: Problem, budget: Budget, solver: Solver | None = None) -> Plan:
    """The plan with the highest rate within a budget; of several, one with fewest GPUs, then fewest kinds of options.

    Raises `InfeasibleError` if no rate above 0 is possible, `NoPlanFoundError` if the time was too short to find one.
    """
    solver = solver or Solver()
    require_routes(problem)
    if budget == Budget():
        raise InvalidInputError("budget", "has no limit, so that there is no highest rate")
    relaxed = Program(problem, budget)
    run(relaxed.maximize_rate(), Solver(), relaxed=True)
    relaxation = relaxed.solved_rate()
    program = Program(problem, budget, ceiling=relaxation)
    outcome = run(program.maximize_rate(), solver)
    first, _ = capacity(problem, program.solved_replicas())
    if first <= relaxation * SLACK:
        _require_found(outcome.proven, solver)
        raise InfeasibleError(*why_nothing_is_served(problem, budget))
    replicas, spent = _break_ties(problem, budget, first, program.solved_replicas(), solver)
    best, rates = capacity(problem, replicas)
    bound = best if outcome.proven and not solver.gap else max(best, program.per_second(outcome.bound))
    return _plan(
        problem, Objective.RATE, replicas, rates, rate=best, capacity=best, value=best, bound=bound,
        relaxation=max(relaxation, best), outcome=outcome, solver=solver, seconds=outcome.seconds + spent,
    )  # fmt: skip


def min_gpus(problem: Problem, rate: float, budget: Budget | None = None, solver: Solver | None = None) -> Plan:
    """The plan with the fewest GPUs that serves `rate`; of several, one with the fewest kinds of executors.

    Raises `InfeasibleError` if no plan within `budget` does, `NoPlanFoundError` if the time was too short to find one.
    """
    return _least(problem, Objective.GPUS, rate, budget or Budget(), solver or Solver())


def min_dollars(problem: Problem, rate: float, budget: Budget | None = None, solver: Solver | None = None) -> Plan:
    """The plan with the fewest dollars per hour that serves `rate`; of several, one with the fewest GPUs, then kinds.

    Raises `InvalidInputError` if an option's GPUs have no price, and otherwise as `min_gpus`.
    """
    return _least(problem, Objective.DOLLARS, rate, budget or Budget(), solver or Solver())


def _least(problem: Problem, objective: Objective, rate: float, budget: Budget, solver: Solver) -> Plan:
    require_routes(problem)
    if not (math.isfinite(rate) and rate > 0):
        raise InvalidInputError("rate", f"has to be a number above 0, not {rate}")
    relaxed, program = Program(problem, budget, rate=rate), Program(problem, budget, rate=rate)
    if run(relaxed.minimize(objective), Solver(), relaxed=True).feasible is False:
        raise InfeasibleError(*why_rate_is_missed(problem, rate, budget, max_rate))
    outcome = run(program.minimize(objective), solver)
    if outcome.feasible is False:
        raise InfeasibleError(*why_rate_is_missed(problem, rate, budget, max_rate))
    _require_found(outcome.feasible, solver)
    value = program.cost(program.solved_replicas(), objective)
    replicas, spent = _break_ties(problem, _at_cost(budget, objective, value), rate, program.solved_replicas(), solver)
    reachable, rates = capacity(problem, replicas)
    value = program.cost(replicas, objective)
    bound = value if outcome.proven and not solver.gap else min(value, outcome.bound)
    return _plan(
        problem, objective, replicas, _scaled(rates, rate / reachable), rate=rate, capacity=max(rate, reachable),
        value=value, bound=bound, relaxation=min(value, relaxed.value()), outcome=outcome, solver=solver,
        seconds=outcome.seconds + spent,
    )  # fmt: skip


def capacity(problem: Problem, replicas: Mapping[str, int]) -> tuple[float, tuple[PathRate, ...]]:
    """Requests per second that these replicas can serve at most, and how they are divided among the paths."""
    if not replicas:
        return 0.0, ()
    program = Program(problem, Budget(), replicas=replicas)
    run(program.maximize_rate(), Solver(), relaxed=True)
    return _exactly(problem, program.solved_rates(), replicas)


def _exactly(
    problem: Problem, rates: list[tuple[Route, float]], replicas: Mapping[str, int]
) -> tuple[float, tuple[PathRate, ...]]:
    """Takes a solver's tolerances out: types have their shares, and no option is used more than it can be."""
    by_type: dict[str, float] = {}
    for route, rate in rates:
        by_type[route.type] = by_type.get(route.type, 0.0) + rate
    used = [(route, rate) for route, rate in rates if rate > NEGLIGIBLE * by_type[route.type]]
    by_type = {name: math.fsum(rate for route, rate in used if route.type == name) for name in by_type}
    if any(rate <= 0 for rate in by_type.values()):
        return 0.0, ()
    shares = [(route, problem.shares[route.type] * rate / by_type[route.type]) for route, rate in used]
    work: dict[str, float] = {}
    for route, share in shares:
        for name, seconds in route.seconds.items():
            work[name] = work.get(name, 0.0) + share * seconds
    reachable = min(replicas[name] / seconds if name in replicas else 0.0 for name, seconds in work.items())
    return reachable, tuple(PathRate(type=r.type, path=r.path, rate=share * reachable) for r, share in shares)


def _break_ties(
    problem: Problem, budget: Budget, rate: float, replicas: dict[str, int], solver: Solver
) -> tuple[dict[str, int], float]:
    """Fewest GPUs, then fewest kinds of executors, for a rate; and the seconds that took."""
    program = Program(problem, budget, rate=rate * (1 - SLACK / 2))
    outcome = run(program.minimize_gpus_then_kinds(_size(problem, replicas)), solver, nodes=TIE_NODES)
    if not outcome.feasible or capacity(problem, program.solved_replicas())[0] < rate * (1 - SLACK):
        return replicas, outcome.seconds
    return program.solved_replicas(), outcome.seconds


def _size(problem: Problem, replicas: Mapping[str, int]) -> tuple[int, int]:
    return sum(problem.option[name].gpus * count for name, count in replicas.items()), len(replicas)


def _at_cost(budget: Budget, objective: Objective, value: float) -> Budget:
    match objective:
        case Objective.DOLLARS:
            return Budget(budget.gpus, budget.gpus_of, value * (1 + SLACK))
        case _:
            return Budget(round(value), budget.gpus_of, budget.dollars)


def _require_found(found: bool | None, solver: Solver) -> None:
    if not found:
        raise NoPlanFoundError(f"{solver.engine} found no plan in {solver.time_limit} s; give it more time")


def _scaled(rates: tuple[PathRate, ...], factor: float) -> tuple[PathRate, ...]:
    return tuple(PathRate(type=entry.type, path=entry.path, rate=entry.rate * factor) for entry in rates)


def _plan(
    problem: Problem,
    objective: Objective,
    replicas: dict[str, int],
    rates: tuple[PathRate, ...],
    *,
    rate: float,
    capacity: float,
    value: float,
    bound: float,
    relaxation: float,
    outcome: Outcome,
    solver: Solver,
    seconds: float,
) -> Plan:
    return Plan(
        objective=objective,
        replicas=replicas,
        rates=rates,
        rate=rate,
        capacity=capacity,
        gpus=sum(problem.option[name].gpus * count for name, count in replicas.items()),
        dollars=problem.dollars(replicas),
        value=value,
        bound=bound,
        relaxation=relaxation,
        proven=outcome.proven,
        solver=solver.engine,
        solve_seconds=seconds,
    )
