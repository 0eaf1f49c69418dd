"""Fixed strategies: the whole model in one executor, each component in its own, and combinations.

A fixed strategy runs every component on one deployment option, so all requests of a type take the same path: monolith,
E/PD, EP/D, E/P/D and so on [C §7.3]. Each is a restriction of the planning problem, so no optimal plan is worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.model.solution import Objective
from cornserve_planner.solve.budget import Budget

ROUNDING_TOLERANCE = 1e-9
"""Relative tolerance of a replica's time."""
BISECTIONS = 60
"""Number of bisections of a rate, after which few replicas remain to be added."""


@dataclass(frozen=True, slots=True)
class FixedStrategy:
    """Deployment options that together run every needed component exactly once."""

    options: tuple[str, ...]

    @property
    def name(self) -> str:
        return " / ".join(self.options)

    @property
    def monolithic(self) -> bool:
        return len(self.options) == 1


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """The rate and cost of a strategy.

    Args:
        even: whether GPUs are divided evenly among its options instead of by load.
    """

    strategy: FixedStrategy
    even: bool
    replicas: Mapping[str, int]
    rate: float
    gpus: int
    dollars: float | None

    @property
    def name(self) -> str:
        return f"{self.strategy.name}, evenly" if self.even else self.strategy.name

    def value(self, objective: Objective) -> float:
        """Returns the value of the objective; infinite dollars if a price is unknown."""
        match objective:
            case Objective.RATE:
                return self.rate
            case Objective.GPUS:
                return float(self.gpus)
            case Objective.DOLLARS:
                return math.inf if self.dollars is None else self.dollars


def fixed_strategies(problem: PlanningProblem) -> tuple[FixedStrategy, ...]:
    """Returns all strategies: one path for each type, such that no component runs on two options."""
    found: dict[frozenset[str], None] = {frozenset(): None}
    for kind, share in problem.shares.items():
        if share > 0:
            paths = dict.fromkeys(frozenset(path.seconds) for path in problem.usable if path.type == kind)
            found = dict.fromkeys(chosen | path for chosen in found for path in paths if _once(problem, chosen | path))
    order = {option.name: index for index, option in enumerate(problem.options)}
    strategies = [FixedStrategy(tuple(sorted(options, key=order.__getitem__))) for options in found]
    strategies = [strategy for strategy in strategies if all(_load(problem, strategy).values())]
    return tuple(sorted(strategies, key=lambda strategy: (len(strategy.options), strategy.name)))


def strategy_rates(problem: PlanningProblem, budget: Budget) -> tuple[StrategyResult, ...]:
    """Returns the rate of each strategy within a budget, best first.

    Omits strategies that do not fit in the budget, or that the budget does not limit.
    """
    results, problem = [], problem.without_utilization_limits
    for strategy in fixed_strategies(problem):
        load = _load(problem, strategy)
        if not budget.allows(problem, dict.fromkeys(strategy.options, 1)) or not budget.limits(
            problem, strategy.options
        ):
            continue
        results.append(_strategy_result(problem, strategy, _fill(problem, budget, load), load))
        even = _even(problem, strategy, budget)
        if len(even) > 1 and all(even.values()) and budget.allows(problem, even):
            results.append(_strategy_result(problem, strategy, even, load, even=True))
    return tuple(sorted(results, key=lambda result: (-result.rate, result.gpus, len(result.replicas))))


def strategy_costs(
    problem: PlanningProblem, rate: float, objective: Objective = Objective.GPUS
) -> tuple[StrategyResult, ...]:
    """Returns the cost of each strategy for a rate, cheapest first."""
    results, problem = [], problem.without_utilization_limits
    for strategy in fixed_strategies(problem):
        load = _load(problem, strategy)
        needed = _needed(load, rate)
        results.append(_strategy_result(problem, strategy, needed, load, rate=rate))
        if len(needed) > 1:
            each = max(problem.option[name].gpus * count for name, count in needed.items())
            even = {name: each // problem.option[name].gpus for name in needed}
            results.append(_strategy_result(problem, strategy, even, load, rate=rate, even=True))
    return tuple(sorted(results, key=lambda result: (result.value(objective), result.gpus, len(result.replicas))))


def _once(problem: PlanningProblem, options: frozenset[str]) -> bool:
    components = [component for name in options for component in problem.option[name].components]
    return len(components) == len(set(components))


def _load(problem: PlanningProblem, strategy: FixedStrategy) -> dict[str, float]:
    """Returns, by option, the seconds that the mean request needs."""
    load = dict.fromkeys(strategy.options, 0.0)
    for kind, share in problem.shares.items():
        if share > 0:
            for name, seconds in _route(problem, strategy, kind).seconds.items():
                load[name] += share * seconds
    return load


def _route(problem: PlanningProblem, strategy: FixedStrategy, kind: str) -> RequestPath:
    paths = [r for r in problem.usable if r.type == kind and r.seconds.keys() <= set(strategy.options)]
    return min(paths, key=lambda path: sum(path.seconds.values()))


def _fill(problem: PlanningProblem, budget: Budget, load: Mapping[str, float]) -> dict[str, int]:
    """Returns the fewest replicas for the highest rate within the budget, starting from one replica of each option."""
    low, high = 0.0, 1 / max(load.values())
    while budget.allows(problem, _needed(load, high)):
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if budget.allows(problem, _needed(load, middle)) else (low, middle)
    filled = _needed(load, low)
    while True:
        slowest = min(load, key=lambda name: filled[name] / load[name])
        filled[slowest] += 1
        if not budget.allows(problem, filled):
            filled[slowest] -= 1
            return filled


def _needed(load: Mapping[str, float], rate: float) -> dict[str, int]:
    return {name: max(1, math.ceil(work * rate - ROUNDING_TOLERANCE)) for name, work in load.items()}


def _even(problem: PlanningProblem, strategy: FixedStrategy, budget: Budget) -> dict[str, int]:
    if budget.gpus is None:
        return {}
    each = budget.gpus // len(strategy.options)
    return {name: each // problem.option[name].gpus for name in strategy.options}


def _strategy_result(
    problem: PlanningProblem,
    strategy: FixedStrategy,
    replicas: Mapping[str, int],
    load: Mapping[str, float],
    rate: float | None = None,
    even: bool = False,
) -> StrategyResult:
    if rate is None:
        rate = min(replicas[name] / work for name, work in load.items())
    gpus = sum(problem.option[name].gpus * count for name, count in replicas.items())
    return StrategyResult(strategy, even, replicas, rate, gpus, problem.dollars(replicas))
