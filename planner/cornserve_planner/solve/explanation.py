"""Explains a plan: its limits, the utilization of its replicas, and the alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Objective, Solution
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.strategies import StrategyResult, strategy_costs, strategy_rates

FULL = 1e-6
"""Options within this relative distance of the highest utilization, relative to its maximum, limit the plan."""


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """The explanation of a plan.

    Args:
        utilization: by option, the fraction of its replicas' time that is used at the plan's rate.
        limiting: options that are used up to their maximum utilization when the plan serves its capacity.
        one_more: by option, the requests per second that one more replica would add to the capacity.
        binding: text that names the constraint that prevents a better plan.
        strategies: results of fixed strategies, best first.
        excluded: options that do not fit their GPUs, with the reason.
    """

    plan: Solution
    utilization: Mapping[str, float]
    limiting: tuple[str, ...]
    one_more: Mapping[str, float]
    binding: str
    strategies: tuple[StrategyResult, ...]
    excluded: Mapping[str, str]

    @property
    def gain(self) -> float | None:
        """Improvement over the best fixed strategy, as a factor; None if no fixed strategy exists."""
        if not self.strategies:
            return None
        best = self.strategies[0].value(self.plan.objective)
        return self.plan.value / best if self.plan.objective is Objective.RATE else best / self.plan.value


def explain_plan(problem: PlanningProblem, plan: Solution, budget: Budget | None = None) -> PlanExplanation:
    """Explains a plan that was solved for `problem`, within `budget` if given."""
    budget = budget or Budget()
    used = utilization(problem, plan)
    of_limit = {name: fraction / problem.max_utilization.get(name, 1.0) for name, fraction in used.items()}
    highest = max(of_limit.values())
    limiting = tuple(name for name, fraction in of_limit.items() if fraction >= highest * (1 - FULL))
    one_more = {
        name: max(0.0, capacity(problem, {**plan.replicas, name: count + 1})[0] - plan.capacity)
        for name, count in plan.replicas.items()
    }
    return PlanExplanation(
        plan=plan,
        utilization=used,
        limiting=limiting,
        one_more=one_more,
        binding=_binding(plan, budget, limiting),
        strategies=(
            strategy_rates(problem, budget)
            if plan.objective is Objective.RATE
            else strategy_costs(problem, plan.rate, plan.objective)
        ),
        excluded=problem.excluded,
    )


def utilization(problem: PlanningProblem, plan: Solution) -> dict[str, float]:
    """Returns, by option, the fraction of its replicas' time that a plan uses."""
    seconds = {(path.type, path.name): path.seconds for path in problem.paths}
    busy = dict.fromkeys(plan.replicas, 0.0)
    for entry in plan.rates:
        for name, each in seconds[entry.type, entry.path].items():
            busy[name] += entry.rate * each
    return {name: busy[name] / count for name, count in plan.replicas.items()}


def _binding(plan: Solution, budget: Budget, limiting: tuple[str, ...]) -> str:
    full = f"{', '.join(limiting)} {'is at its' if len(limiting) == 1 else 'are at their'} maximum utilization"
    if plan.objective is Objective.RATE and budget != Budget():
        return f"the budget of {budget}: {full} at {plan.rate:.4g} requests/s"
    return f"the rate of {plan.rate:.4g} requests/s: {full} at {plan.capacity:.4g} requests/s"
