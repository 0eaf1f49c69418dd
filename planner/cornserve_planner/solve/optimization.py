"""Plans without topology: maximum rate within a budget, or minimum cost for a rate [C §4.2, App. B].

Solutions are exact only up to the solvers' tolerances. Therefore, only the integer numbers of replicas are taken from a
solution, and a linear program then computes the rate that these replicas serve.
"""

from __future__ import annotations

import math

from cornserve_planner.errors import InfeasibleError, InvalidInputError, NoPlanFoundError, require_positive
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Objective, Solution
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.infeasible import explain_empty_plan, explain_missed_rate, require_paths
from cornserve_planner.solve.milp import MilpProgram
from cornserve_planner.solve.plan_size import PlanSize
from cornserve_planner.solve.search import SLACK, ReplicaSearch, TieBreak
from cornserve_planner.solve.solver import SolverSettings, solve_program
from cornserve_planner.solve.strategies import strategy_costs, strategy_rates

TOLERATED = 1e-5
"""Relative tolerance of the rate of a solver's solution."""
MOST_REPLICAS = 1e14
"""Number of replicas of an option above which solvers reject a program."""


def max_rate(
    problem: PlanningProblem, budget: Budget, solver: SolverSettings | None = None, survive: bool = False
) -> Solution:
    """Returns the plan with the highest rate within a budget. Of these, it has the smallest `PlanSize`.

    Args:
        survive: serve the rate also after the loss of any one replica.

    Raises `InfeasibleError` if no rate above 0 is possible, and `NoPlanFoundError` if the time limit is too short.
    """
    solver, problem = solver or SolverSettings(), problem.without_utilization_limits
    search = ReplicaSearch(problem, solver, survive)
    require_paths(problem)
    if budget == Budget():
        raise InvalidInputError("budget", "must have a limit; otherwise the rate is unbounded")
    relaxed = MilpProgram(problem, budget, whole=False)
    if not solve_program(relaxed.maximize_rate(), SolverSettings(), relaxed=True).proven:
        raise InvalidInputError("budget", f"{budget} leaves some options without a limit, so the rate is unbounded")
    relaxation = relaxed.solved_rate()
    found = search.run(budget, MilpProgram.maximize_rate, ceiling=relaxation)
    outcome, program = found.outcome, found.program
    candidates = [search.served({}) if found.served is None else found.served]
    if not outcome.proven:
        candidates += [search.served(dict(result.replicas)) for result in strategy_rates(problem, budget)[:1]]
    first = max(candidates, key=lambda candidate: candidate.rate)
    if first.rate <= relaxation * SLACK:
        _require_found(outcome.proven, solver)
        raise InfeasibleError(*explain_empty_plan(problem, budget, survive=survive))
    ties = search.break_ties(budget, first.rate, first)
    best = ties.winner.rate
    proven = outcome.proven and best >= program.solved_rate() * (1 - TOLERATED)
    solver_bound = relaxation if math.isnan(outcome.bound) else min(relaxation, program.per_second(outcome.bound))
    bound = best if proven and not solver.gap else max(best, solver_bound)
    return _plan(
        problem, Objective.RATE, ties, rate=best, value=best, bound=bound, relaxation=max(relaxation, best),
        proven=proven, seconds=search.seconds, solver=solver, survive=survive,
    )  # fmt: skip


def min_gpus(
    problem: PlanningProblem,
    rate: float,
    budget: Budget | None = None,
    solver: SolverSettings | None = None,
    survive: bool = False,
) -> Solution:
    """Returns the plan with the fewest GPUs that serves `rate`. Of these, it has the smallest `PlanSize`.

    Args:
        survive: serve the rate also after the loss of any one replica.

    Raises `InfeasibleError` if no plan within `budget` serves it, and `NoPlanFoundError` if the time limit is too
    short.
    """
    return _min_cost(problem, Objective.GPUS, rate, budget or Budget(), solver or SolverSettings(), survive)


def min_dollars(
    problem: PlanningProblem,
    rate: float,
    budget: Budget | None = None,
    solver: SolverSettings | None = None,
    survive: bool = False,
) -> Solution:
    """Returns the plan with the fewest dollars per hour that serves `rate`. Of these, it has the smallest `PlanSize`.

    Args:
        survive: serve the rate also after the loss of any one replica.

    Raises `InvalidInputError` if an option's GPUs have no price; other errors as in `min_gpus`.
    """
    return _min_cost(problem, Objective.DOLLARS, rate, budget or Budget(), solver or SolverSettings(), survive)


def _min_cost(
    problem: PlanningProblem,
    objective: Objective,
    rate: float,
    budget: Budget,
    solver: SolverSettings,
    survive: bool,
) -> Solution:
    problem = problem.without_utilization_limits
    search = ReplicaSearch(problem, solver, survive)
    require_paths(problem)
    require_positive("rate", rate)
    if rate * max(problem.shares[path.type] * max(path.seconds.values()) for path in problem.usable) > MOST_REPLICAS:
        raise _imprecise(rate)
    relaxed = MilpProgram(problem, budget, rate=rate, whole=False)
    if solve_program(relaxed.minimize(objective), SolverSettings(), relaxed=True).feasible is False:
        raise _infeasible(problem, rate, budget, survive)
    found = search.run(budget, lambda program: program.minimize(objective), rate=rate, precision=TOLERATED)
    outcome, program = found.outcome, found.program
    if outcome.feasible is False:
        raise _infeasible(problem, rate, budget, survive)
    candidates = [] if found.served is None else [found.served]
    if not outcome.proven:
        spare = int(survive)
        fixed = (dict(result.replicas) for result in strategy_costs(problem, rate, objective))
        allowed = [{name: n + spare for name, n in replicas.items()} for replicas in fixed]
        candidates += [search.served(replicas) for replicas in allowed if budget.allows(problem, replicas)][:1]
    serving = [served for served in candidates if served.rate >= rate * (1 - TOLERATED)]
    _require_found(bool(serving), solver)
    first = min(serving, key=lambda served: program.cost(served.replicas, objective))
    cost = program.cost(first.replicas, objective)
    ties = search.break_ties(_at_cost(budget, objective, cost), rate, first)
    value = program.cost(ties.winner.replicas, objective)
    relaxation = min(value, relaxed.value())
    solver_bound = relaxation if math.isnan(outcome.bound) else max(relaxation, outcome.bound)
    return _plan(
        problem, objective, ties, rate=min(rate, ties.winner.rate), value=value,
        bound=value if outcome.proven and not solver.gap else min(value, solver_bound), relaxation=relaxation,
        proven=outcome.proven, seconds=search.seconds, solver=solver, survive=survive,
    )  # fmt: skip


def _at_cost(budget: Budget, objective: Objective, value: float) -> Budget:
    match objective:
        case Objective.DOLLARS:
            return Budget(budget.gpus, budget.gpus_of, value * (1 + SLACK))
        case _:
            return Budget(round(value), budget.gpus_of, budget.dollars)


def _infeasible(problem: PlanningProblem, rate: float, budget: Budget, survive: bool) -> Exception:
    if budget == Budget():
        return _imprecise(rate)
    best = max_rate(problem, budget, SolverSettings(time_limit=10.0), survive)
    return InfeasibleError(*explain_missed_rate(rate, budget, best, survive=survive))


def _imprecise(rate: float) -> InvalidInputError:
    return InvalidInputError("rate", f"{rate:g} requests/s exceed the precision of the solvers for one plan")


def _require_found(found: bool | None, solver: SolverSettings) -> None:
    if not found:
        raise NoPlanFoundError(f"{solver.engine} found no plan in {solver.time_limit} s: raise the time limit")


def _plan(
    problem: PlanningProblem,
    objective: Objective,
    ties: TieBreak,
    *,
    rate: float,
    value: float,
    bound: float,
    relaxation: float,
    proven: bool,
    seconds: float,
    solver: SolverSettings,
    survive: bool,
) -> Solution:
    served = ties.winner
    return Solution(
        objective=objective,
        replicas=served.replicas,
        rates=tuple(entry.model_copy(update={"rate": entry.rate * (rate / served.capacity)}) for entry in served.rates),
        rate=rate,
        capacity=served.capacity,
        gpus=PlanSize.of(problem, served.replicas).gpus,
        dollars=problem.dollars(served.replicas),
        value=value,
        bound=bound,
        relaxation=relaxation,
        proven=proven,
        survives=survive,
        ties_settled=ties.settled,
        solver=solver.engine,
        solve_seconds=seconds,
    )
