"""The maximum rate that given replicas serve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.model.solution import PathRate
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.milp import MilpProgram
from cornserve_planner.solve.solver import SolverSettings, solve_program

NEGLIGIBLE = 1e-9
"""Fraction of a type's rate below which a path is not used."""


def capacity(problem: PlanningProblem, replicas: Mapping[str, int]) -> tuple[float, tuple[PathRate, ...]]:
    """Returns the maximum requests per second that replicas can serve, before a loss, and the rates on the paths."""
    if not replicas:
        return 0.0, ()
    problem = problem.without_utilization_limits
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
class ReplicaCapacity:
    """The rate that replicas serve.

    Args:
        capacity: the maximum rate, before a loss.
        rates: the rates on the paths at this maximum.
        after_loss: by option, the maximum rate after the loss of one of its replicas; empty if no loss is survived.
    """

    replicas: dict[str, int]
    capacity: float
    rates: tuple[PathRate, ...]
    after_loss: Mapping[str, float]

    @classmethod
    def of(cls, problem: PlanningProblem, replicas: dict[str, int], survive: bool) -> ReplicaCapacity:
        remaining = {
            name: {other: count for other, n in replicas.items() if (count := n - (other == name))}
            for name in (replicas if survive else ())
        }
        after_loss = {name: capacity(problem, left)[0] for name, left in remaining.items()}
        return cls(replicas, *capacity(problem, replicas), after_loss)

    @property
    def rate(self) -> float:
        """The rate that is served, also after a loss if losses are survived."""
        return min([self.capacity, *self.after_loss.values()])
