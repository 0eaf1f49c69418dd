"""Why a plan is what it is: what limits it, how much is used, how far it is from what could be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.plan import Objective, Plan
from cornserve_planner.problem import PlanningProblem
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.milp import capacity
from cornserve_planner.strategies import StrategyResult, strategy_costs, strategy_rates

FULL = 1e-6
"""An option with less than this of its time to spare is fully used."""


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """What there is to say of a plan.

    Args:
        utilisation: of each option, at the plan's rate: the fraction of its replicas' time that is used.
        limiting: the options that are fully used when the plan serves all that it can.
        one_more: requests per second that one more replica of an option would add to what the plan can serve.
        binding: the constraint that keeps the plan from being better, in words.
        strategies: what fixed strategies reach, best first.
        excluded: options that do not fit their GPUs, and why.
    """

    plan: Plan
    utilisation: Mapping[str, float]
    limiting: tuple[str, ...]
    one_more: Mapping[str, float]
    binding: str
    strategies: tuple[StrategyResult, ...]
    excluded: Mapping[str, str]

    @property
    def gain(self) -> float | None:
        """How many times as good as the best fixed strategy the plan is; None if there is none."""
        if not self.strategies:
            return None
        best = self.strategies[0].value(self.plan.objective)
        return self.plan.value / best if self.plan.objective is Objective.RATE else best / self.plan.value


def explain_plan(problem: PlanningProblem, plan: Plan, budget: Budget | None = None) -> PlanExplanation:
    """Explains a plan that was solved for `problem`, within `budget` if there was one."""
    budget = budget or Budget()
    used = utilisation(problem, plan)
    highest = max(used.values())
    limiting = tuple(name for name, fraction in used.items() if fraction >= highest * (1 - FULL))
    one_more = {
        name: max(0.0, capacity(problem, {**plan.replicas, name: count + 1})[0] - plan.capacity)
        for name, count in plan.replicas.items()
    }
    return PlanExplanation(
        plan=plan,
        utilisation=used,
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


def utilisation(problem: PlanningProblem, plan: Plan) -> dict[str, float]:
    """The fraction of its replicas' time that a plan uses of each option: seconds per second and replica."""
    seconds = {(path.type, path.name): path.seconds for path in problem.paths}
    busy = dict.fromkeys(plan.replicas, 0.0)
    for entry in plan.rates:
        for name, each in seconds[entry.type, entry.path].items():
            busy[name] += entry.rate * each
    return {name: busy[name] / count for name, count in plan.replicas.items()}


def _binding(plan: Plan, budget: Budget, limiting: tuple[str, ...]) -> str:
    full = f"{', '.join(limiting)} {'is' if len(limiting) == 1 else 'are'} fully used"
    if plan.objective is Objective.RATE:
        return f"the budget of {budget}: {full} at {plan.rate:.4g} requests/s"
    return f"the rate of {plan.rate:.4g} requests/s: {full} at {plan.capacity:.4g} requests/s"
