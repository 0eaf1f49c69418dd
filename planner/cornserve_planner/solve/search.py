"""Searches for numbers of replicas, within one time limit.

Programs with all constraints take long. A search therefore starts without those that few problems need, and adds them
if the replicas of a solution do not serve its rate: a replica after each loss, and a replica for each used path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import pulp

from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import ReplicaCapacity
from cornserve_planner.solve.milp import MilpProgram
from cornserve_planner.solve.plan_size import PlanSize
from cornserve_planner.solve.solver import SolverOutcome, SolverSettings, solve_program

SLACK = 1e-7
"""Relative tolerance of the rate of a plan that breaks a tie."""
PRECISION = 1e-6
"""Relative tolerance of the rate of other plans. If replicas serve less, the search adds constraints."""
TIE_NODES = 100
"""Search-tree limit for breaking ties. The value of a plan does not depend on it.

Problems with a dozen options need fewer nodes; with thirty options and 600 paths, the limit takes about a second.
"""
TIE_GPUS = 10_000
"""Size above which ties are not broken, because the weights of GPUs and kinds would exceed the precision of solvers."""


@dataclass(frozen=True, slots=True)
class SolvedProgram:
    """A solution of a program.

    Args:
        served: the rates of its replicas; None if the solver found no replicas.
    """

    program: MilpProgram
    outcome: SolverOutcome
    served: ReplicaCapacity | None


@dataclass(frozen=True, slots=True)
class TieBreak:
    """The result of breaking ties. `settled` is True if no equally good plan is smaller, as far as is known."""

    winner: ReplicaCapacity
    settled: bool


class ReplicaSearch:
    """The solver runs of one plan.

    Args:
        survive: whether the rate is also served after the loss of any one replica.
    """

    def __init__(self, problem: PlanningProblem, solver: SolverSettings, survive: bool) -> None:
        self._problem, self._solver, self._survive = problem, solver, survive
        self._started = perf_counter()
        self._losses: tuple[str, ...] = ()
        self._strict = False

    @property
    def seconds(self) -> float:
        return perf_counter() - self._started

    def served(self, replicas: dict[str, int]) -> ReplicaCapacity:
        return ReplicaCapacity.of(self._problem, replicas, self._survive)

    def run(
        self,
        budget: Budget,
        objective: Callable[[MilpProgram], pulp.LpProblem],
        *,
        rate: float | None = None,
        ceiling: float | None = None,
        precision: float = PRECISION,
        nodes: int | None = None,
    ) -> SolvedProgram:
        """Solves a program until the replicas of its solution serve the rate of the solution.

        Args:
            rate: requests per second to serve; None if the rate is a variable.
            ceiling: an upper bound of the requests per second.
        """
        while True:
            program = MilpProgram(
                self._problem, budget, rate=rate, ceiling=ceiling, strict=self._strict, losses=self._losses
            )
            outcome = solve_program(objective(program), self._solver.after(self.seconds), nodes=nodes)
            if not outcome.feasible:
                return SolvedProgram(program, outcome, None)
            served = self.served(program.solved_replicas())
            missed = (program.solved_rate() if rate is None else rate) * (1 - precision)
            if served.rate >= missed or not self._add_constraints(served, missed):
                return SolvedProgram(program, outcome, served)

    def break_ties(self, budget: Budget, rate: float, first: ReplicaCapacity) -> TieBreak:
        """Finds the smallest plan for a rate that `first` serves."""
        size = PlanSize.of(self._problem, first.replicas)
        if size.gpus > TIE_GPUS:
            return TieBreak(first, False)
        found = self.run(
            budget,
            lambda program: program.minimize_size(better_than=size),
            rate=rate * (1 - SLACK / 2),
            precision=SLACK / 2,
            nodes=TIE_NODES,
        )
        if found.served is None:
            return TieBreak(first, found.outcome.proven)
        if found.served.rate < rate * (1 - SLACK):
            return TieBreak(first, False)
        return TieBreak(found.served, found.outcome.proven)

    def _add_constraints(self, served: ReplicaCapacity, rate: float) -> bool:
        """Returns whether constraints were added that the replicas of a solution do not satisfy."""
        lost = [name for name, left in served.after_loss.items() if left < rate and name not in self._losses]
        if lost:
            self._losses += tuple(lost)
        elif not self._strict:
            self._strict = True
        else:
            return False
        return True
