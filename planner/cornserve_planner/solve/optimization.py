"""Plans without topology: maximum rate within a budget, or minimum cost for a rate [C §4.2, App. B].

Solutions are exact only up to the solvers' tolerances. Therefore, only the integer numbers of replicas are taken from a
solution, and a linear program then computes the rate that these replicas serve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.errors import InfeasibleError, InvalidInputError, NoPlanFoundError, require_positive
from cornserve_planner.plan import Objective, PathRate, Plan
from cornserve_planner.problem import PlanningProblem, RequestPath
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.infeasible import explain_empty_plan, explain_missed_rate, require_paths
from cornserve_planner.solve.milp import MilpProgram
from cornserve_planner.solve.solver import SolverSettings, solve_program
from cornserve_planner.strategies import strategy_costs, strategy_rates

SLACK = 1e-7
"""Relative tolerance of the rate of a plan that breaks a tie."""
TOLERATED = 1e-5
"""Relative tolerance of the rate of a solver's solution."""
TIE_NODES = 100
"""Search-tree limit for breaking ties. The value of a plan does not depend on it.

Problems with a dozen options need fewer nodes; with thirty options, the limit takes less than a second.
"""
NEGLIGIBLE = 1e-9
"""Fraction of a type's rate below which a path is not used."""


def max_rate(problem: PlanningProblem, budget: Budget, solver: SolverSettings | None = None) -> Plan:
    """Returns the plan with the highest rate within a budget. Ties: fewest GPUs, then fewest kinds of options.

    Raises `InfeasibleError` if no rate above 0 is possible, and `NoPlanFoundError` if the time limit is too short.
    """
    solver = solver or SolverSettings()
    require_paths(problem)
    if budget == Budget():
        raise InvalidInputError("budget", "must have a limit; otherwise the rate is unbounded")
    relaxed = MilpProgram(problem, budget, whole=False)
    if not solve_program(relaxed.maximize_rate(), SolverSettings(), relaxed=True).proven:
        raise InvalidInputError("budget", f"{budget} leaves some options without a limit, so the rate is unbounded")
    relaxation = relaxed.solved_rate()
    program = MilpProgram(problem, budget, ceiling=relaxation)
    outcome = solve_program(program.maximize_rate(), solver)
    first = _replica_capacity(problem, program.solved_replicas())
    if not outcome.proven:
        fixed = [_replica_capacity(problem, dict(result.replicas)) for result in strategy_rates(problem, budget)[:1]]
        first = max([first, *fixed], key=lambda candidate: candidate.rate)
    if first.rate <= relaxation * SLACK:
        _require_found(outcome.proven, solver)
        raise InfeasibleError(*explain_empty_plan(problem, budget))
    ties = _break_ties(problem, budget, first.rate, first, solver)
    best = ties.winner.rate
    proven = outcome.proven and best >= program.solved_rate() * (1 - TOLERATED)
    solver_bound = relaxation if math.isnan(outcome.bound) else min(relaxation, program.per_second(outcome.bound))
    bound = best if proven and not solver.gap else max(best, solver_bound)
    return _plan(
        problem, Objective.RATE, ties, rate=best, value=best, bound=bound, relaxation=max(relaxation, best),
        proven=proven, seconds=outcome.seconds, solver=solver,
    )  # fmt: skip


def min_gpus(
    problem: PlanningProblem, rate: float, budget: Budget | None = None, solver: SolverSettings | None = None
) -> Plan:
    """Returns the plan with the fewest GPUs that serves `rate`. Ties: fewest kinds of executors.

    Raises `InfeasibleError` if no plan within `budget` serves it, and `NoPlanFoundError` if the time limit is too
    short.
    """
    return _min_cost(problem, Objective.GPUS, rate, budget or Budget(), solver or SolverSettings())


def min_dollars(
    problem: PlanningProblem, rate: float, budget: Budget | None = None, solver: SolverSettings | None = None
) -> Plan:
    """Returns the plan with the fewest dollars per hour that serves `rate`. Ties: fewest GPUs, then fewest kinds.

    Raises `InvalidInputError` if an option's GPUs have no price; other errors as in `min_gpus`.
    """
    return _min_cost(problem, Objective.DOLLARS, rate, budget or Budget(), solver or SolverSettings())


def _min_cost(
    problem: PlanningProblem, objective: Objective, rate: float, budget: Budget, solver: SolverSettings
) -> Plan:
    require_paths(problem)
    require_positive("rate", rate)
    relaxed, program = MilpProgram(problem, budget, rate=rate, whole=False), MilpProgram(problem, budget, rate=rate)
    if solve_program(relaxed.minimize(objective), SolverSettings(), relaxed=True).feasible is False:
        raise _infeasible(problem, rate, budget)
    outcome = solve_program(program.minimize(objective), solver)
    if outcome.feasible is False:
        raise _infeasible(problem, rate, budget)
    found = [program.solved_replicas()] if outcome.feasible else []
    if not outcome.proven:
        fixed = (dict(result.replicas) for result in strategy_costs(problem, rate, objective))
        found += [replicas for replicas in fixed if budget.allows(problem, replicas)][:1]
    serving = [
        served
        for served in (_replica_capacity(problem, replicas) for replicas in found)
        if served.rate >= rate * (1 - TOLERATED)
    ]
    _require_found(bool(serving), solver)
    first = min(serving, key=lambda served: program.cost(served.replicas, objective))
    cost = program.cost(first.replicas, objective)
    ties = _break_ties(problem, _at_cost(budget, objective, cost), rate, first, solver)
    value = program.cost(ties.winner.replicas, objective)
    relaxation = min(value, relaxed.value())
    solver_bound = relaxation if math.isnan(outcome.bound) else max(relaxation, outcome.bound)
    return _plan(
        problem, objective, ties, rate=min(rate, ties.winner.rate), value=value,
        bound=value if outcome.proven and not solver.gap else min(value, solver_bound), relaxation=relaxation,
        proven=outcome.proven, seconds=outcome.seconds, solver=solver,
    )  # fmt: skip


def capacity(problem: PlanningProblem, replicas: Mapping[str, int]) -> tuple[float, tuple[PathRate, ...]]:
    """Returns the maximum requests per second that replicas can serve, and the rates on the paths."""
    if not replicas:
        return 0.0, ()
    program = MilpProgram(problem, Budget(), replicas=replicas)
    if {path.type for path in program.paths} != {name for name, share in problem.shares.items() if share > 0}:
        return 0.0, ()
    solve_program(program.maximize_rate(), SolverSettings(), relaxed=True)
    return _without_tolerances(problem, program.solved_rates(), replicas)


def _without_tolerances(
    problem: PlanningProblem, rates: list[tuple[RequestPath, float]], replicas: Mapping[str, int]
) -> tuple[float, tuple[PathRate, ...]]:
    """Removes a solver's tolerances: types get their exact shares, and no option is used beyond its capacity."""
    by_type: dict[str, float] = {}
    for path, rate in rates:
        by_type[path.type] = by_type.get(path.type, 0.0) + rate
    used = [(path, rate) for path, rate in rates if rate > NEGLIGIBLE * by_type[path.type]]
    by_type = {name: math.fsum(rate for path, rate in used if path.type == name) for name in by_type}
    if any(rate <= 0 for rate in by_type.values()):
        return 0.0, ()
    shares = [(path, problem.shares[path.type] * rate / by_type[path.type]) for path, rate in used]
    work: dict[str, float] = {}
    for path, share in shares:
        for name, seconds in path.seconds.items():
            work[name] = work.get(name, 0.0) + share * seconds
    reachable = min(replicas[name] / seconds for name, seconds in work.items())
    return reachable, tuple(PathRate(type=r.type, path=r.name, rate=share * reachable) for r, share in shares)


@dataclass(frozen=True, slots=True)
class _ReplicaCapacity:
    """Replicas, the maximum rate that they serve, and the rates on the paths."""

    replicas: dict[str, int]
    rate: float
    rates: tuple[PathRate, ...]


@dataclass(frozen=True, slots=True)
class _TieBreak:
    """The result of breaking ties. `settled` is True if no equally good plan is known to need less."""

    winner: _ReplicaCapacity
    settled: bool
    seconds: float


def _replica_capacity(problem: PlanningProblem, replicas: dict[str, int]) -> _ReplicaCapacity:
    return _ReplicaCapacity(replicas, *capacity(problem, replicas))


def _break_ties(
    problem: PlanningProblem, budget: Budget, rate: float, first: _ReplicaCapacity, solver: SolverSettings
) -> _TieBreak:
    """Minimizes GPUs, then kinds of executors, for a rate that `first` serves."""
    program = MilpProgram(problem, budget, rate=rate * (1 - SLACK / 2))
    outcome = solve_program(program.minimize_gpus_then_kinds(_size(problem, first.replicas)), solver, nodes=TIE_NODES)
    if not outcome.feasible:
        return _TieBreak(first, outcome.proven, outcome.seconds)
    found = _replica_capacity(problem, program.solved_replicas())
    if found.rate < rate * (1 - SLACK):
        return _TieBreak(first, False, outcome.seconds)
    return _TieBreak(found, outcome.proven, outcome.seconds)


def _size(problem: PlanningProblem, replicas: Mapping[str, int]) -> tuple[int, int]:
    return sum(problem.option[name].gpus * count for name, count in replicas.items()), len(replicas)


def _at_cost(budget: Budget, objective: Objective, value: float) -> Budget:
    match objective:
        case Objective.DOLLARS:
            return Budget(budget.gpus, budget.gpus_of, value * (1 + SLACK))
        case _:
            return Budget(round(value), budget.gpus_of, budget.dollars)


def _infeasible(problem: PlanningProblem, rate: float, budget: Budget) -> Exception:
    if budget == Budget():
        return InvalidInputError("rate", f"{rate:g} requests/s exceed the precision of the solvers for one plan")
    return InfeasibleError(*explain_missed_rate(problem, rate, budget, max_rate))


def _require_found(found: bool | None, solver: SolverSettings) -> None:
    if not found:
        raise NoPlanFoundError(f"{solver.engine} found no plan in {solver.time_limit} s: raise the time limit")


def _plan(
    problem: PlanningProblem,
    objective: Objective,
    ties: _TieBreak,
    *,
    rate: float,
    value: float,
    bound: float,
    relaxation: float,
    proven: bool,
    seconds: float,
    solver: SolverSettings,
) -> Plan:
    served = ties.winner
    return Plan(
        objective=objective,
        replicas=served.replicas,
        rates=tuple(entry.model_copy(update={"rate": entry.rate * (rate / served.rate)}) for entry in served.rates),
        rate=rate,
        capacity=served.rate,
        gpus=_size(problem, served.replicas)[0],
        dollars=problem.dollars(served.replicas),
        value=value,
        bound=bound,
        relaxation=relaxation,
        proven=proven,
        ties_settled=ties.settled,
        solver=solver.engine,
        solve_seconds=seconds + ties.seconds,
    )
