"""States how certain a plan is: the interval of its rate, and the estimates that it depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cornserve_planner.conversion.rate_confidence import rate_draws
from cornserve_planner.conversion.size_costs import Draws
from cornserve_planner.conversion.throughput_conversion import interval
from cornserve_planner.conversion.throughput_measurement import joined_sources, weakest_tag
from cornserve_planner.inputs.planning_inputs import PlanInputs
from cornserve_planner.model.graph import PathStep, RequestType
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Solution
from cornserve_planner.profiles.sourced_value import Tag
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.sensitivity import PlanChange, plan_changes


@dataclass(frozen=True, slots=True)
class EstimateSource:
    """The origin of an option's times.

    Args:
        option: the name in the profile.
        tag: that of the least certain rate; None for an assumed factor.
    """

    option: str
    tag: Tag | None
    text: str

    @property
    def certain(self) -> bool:
        """Whether the times were measured, by the user or by others."""
        return self.tag in ("measured", "published")


@dataclass(frozen=True, slots=True)
class PlanConfidence:
    """
    Args:
        low, high: confidence interval of the requests per second that all running cells serve.
        sources: by option.
        changes: the times of options at which another plan for the same budget is better, the closest first.
    """

    low: float
    high: float
    sources: Mapping[str, EstimateSource]
    changes: tuple[PlanChange, ...]

    @property
    def weakest(self) -> PlanChange | None:
        """The closest change of an option that was not measured."""
        return next((change for change in self.changes if not self.sources[change.option].certain), None)


class EstimatedTimes(Protocol):
    """The request types of a problem, and the estimated seconds of their steps, followed by random draws."""

    @property
    def types(self) -> Iterable[RequestType]: ...

    def drawn(self, kind: RequestType, step: PathStep) -> Draws: ...


def estimate_sources(inputs: PlanInputs, factors: Mapping[str, float]) -> dict[str, EstimateSource]:
    """Returns the origin of the times of each option.

    Args:
        factors: the colocation factors that the user assumed.
    """
    sources = {}
    for option in inputs.graph.options:
        if any(option.name in path.seconds for path in inputs.problem.usable):
            known = (inputs.conversion.rates.get((option.name, part), ()) for part in option.components)
            rates = [rate for found in known for rate in found]
            own = [rate for rate in rates if rate.option == option.name]
            sources[option.name] = EstimateSource(option.name, weakest_tag(rates), joined_sources(own or rates))
    return sources | {
        name: EstimateSource(name, None, f"assumed factor {factor:g}") for name, factor in factors.items()
    }


def plan_confidence(
    problem: PlanningProblem,
    times: EstimatedTimes,
    sources: Mapping[str, EstimateSource],
    plans: Iterable[tuple[int, Solution]],
    budget: Budget,
    *,
    every_option: bool = False,
) -> PlanConfidence:
    """Returns the confidence of plans that were solved for `problem`.

    Args:
        times: from which the seconds of the problem follow.
        plans: the number of running cells with each plan.
        budget: the budget of all running cells.
        every_option: also search the changes of options that were measured.
    """
    searched = [name for name, source in sources.items() if every_option or not source.certain]
    draws, replicas = [], Counter[str]()
    for count, plan in plans:
        draws.append(count * rate_draws(problem, times.types, times.drawn, plan))
        replicas.update({name: count * number for name, number in plan.replicas.items()})
    low, high = interval(np.sum(draws, axis=0))
    return PlanConfidence(low, high, sources, plan_changes(problem, replicas, budget, searched))
