"""Finds how far the time of an option may differ from its estimate before another plan serves more requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Objective
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.milp import MilpProgram
from cornserve_planner.solve.solver import SolverSettings, solve_program

MATERIAL = 0.01
"""Another plan is better if it serves more than this fraction more."""
WIDEST = 4.0
"""The search considers options that are up to this many times as slow or as fast as estimated."""
PRECISION = 1.01
"""Ratio of two factors that the search does not separate."""
EXAMPLE = 1.2
"""The cost of a wrong estimate is stated for an option that is this many times as slow or as fast as where another plan
becomes better."""
SEARCH_NODES = 100
"""Search-tree limit for one factor. If the search for a better plan is stopped, none is reported."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """The smallest deviation of an option's time at which another plan is better.

    Args:
        times: the option's time divided by its estimate. Above 1, the option is slower; below 1, faster.
        replicas: replicas of the better plan.
        example: a time of the option divided by its estimate, farther from 1.
        served, better: the rates of the plan and of the better plan at this time, divided by the estimated rate.
    """

    option: str
    times: float
    replicas: Mapping[str, int]
    example: float
    served: float
    better: float


def plan_changes(
    problem: PlanningProblem, replicas: Mapping[str, int], budget: Budget, options: Iterable[str]
) -> tuple[PlanChange, ...]:
    """Returns the changes of each option's time that make a plan with other replicas better, the closest first.

    The search scales all seconds of one option by a common factor and assumes that a plan which is worse at one
    factor remains worse farther from 1. If another plan is better already at 1, as for cells that divide the budget,
    it must gain as much again.
    """
    search = _ChangeSearch(problem.without_utilization_limits, replicas, budget)
    changes = [change for option in options for change in search.changes_of(option)]
    return tuple(sorted(changes, key=lambda change: abs(math.log(change.times))))


def scaled(problem: PlanningProblem, option: str, times: float) -> PlanningProblem:
    """Returns the problem in which an option needs `times` its seconds."""
    paths = (
        replace(path, seconds={**path.seconds, option: path.seconds[option] * times})
        if option in path.seconds
        else path
        for path in problem.paths
    )
    return replace(problem, paths=tuple(paths))


class _ChangeSearch:
    def __init__(self, problem: PlanningProblem, replicas: Mapping[str, int], budget: Budget) -> None:
        self.problem, self.replicas, self.budget = problem, replicas, budget
        program = MilpProgram(problem, budget)
        solve_program(program.maximize_rate(), SolverSettings(), nodes=SEARCH_NODES)
        best = capacity(problem, program.solved_replicas())[0]
        self.rate = capacity(problem, replicas)[0]
        self.gain = max(1.0, best / self.rate) * (1 + MATERIAL)
        """A plan is better if it serves this many times the rate of the replicas."""

    def changes_of(self, option: str) -> Iterator[PlanChange]:
        if not any(option in path.seconds for path in self.problem.usable):
            return
        # More time of an option that the plan does not use cannot make another plan better.
        for widest in (WIDEST, 1 / WIDEST) if option in self.replicas else (1 / WIDEST,):
            better = self._better_replicas(scaled(self.problem, option, widest))
            if better is None:
                continue
            near, far = 1.0, widest
            while max(far / near, near / far) > PRECISION:
                middle = math.sqrt(near * far)
                found = self._better_replicas(scaled(self.problem, option, middle))
                near, far, better = (near, middle, found) if found else (middle, far, better)
            yield self._change(option, far, better)

    def _change(self, option: str, times: float, replicas: Mapping[str, int]) -> PlanChange:
        example = times * EXAMPLE if times > 1 else times / EXAMPLE
        wrong = scaled(self.problem, option, example)
        served, better = (capacity(wrong, each)[0] / self.rate for each in (self.replicas, replicas))
        return PlanChange(option, times, replicas, example, served, better)

    def _better_replicas(self, problem: PlanningProblem) -> dict[str, int] | None:
        wanted = capacity(problem, self.replicas)[0] * self.gain
        relaxed = MilpProgram(problem, self.budget, rate=wanted, whole=False)
        if not solve_program(relaxed.minimize(Objective.GPUS), SolverSettings(), relaxed=True).feasible:
            return None
        program = MilpProgram(problem, self.budget, rate=wanted)
        outcome = solve_program(program.minimize(Objective.GPUS), SolverSettings(), nodes=SEARCH_NODES)
        return program.solved_replicas() if outcome.feasible else None
