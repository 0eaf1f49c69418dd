"""What fixed strategies reach: the whole model in one executor, its components apart, and what is between.

A fixed strategy runs every component on one deployment option, so that every request of a type takes the same path:
monolith, E/PD, EP/D, E/P/D and so on [C §7.3]. Each is a restriction of the same problem; no plan may be worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.plan import Objective
from cornserve_planner.problem import Problem, Route
from cornserve_planner.solve.budget import Budget

ROUNDING = 1e-9
"""Of a replica's time: as much more than it has counts as what it has."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """Deployment options that together run every component that is needed once."""

    options: tuple[str, ...]

    @property
    def name(self) -> str:
        return " / ".join(self.options)

    @property
    def monolithic(self) -> bool:
        return len(self.options) == 1


@dataclass(frozen=True, slots=True)
class Reached:
    """What a strategy comes to.

    Args:
        even: whether GPUs are divided evenly among its options, not as its requests need them.
    """

    strategy: Strategy
    even: bool
    replicas: Mapping[str, int]
    rate: float
    gpus: int
    dollars: float | None

    @property
    def name(self) -> str:
        return f"{self.strategy.name}, evenly" if self.even else self.strategy.name

    def value(self, objective: Objective) -> float:
        """Infinite dollars where a price is unknown."""
        match objective:
            case Objective.RATE:
                return self.rate
            case Objective.GPUS:
                return float(self.gpus)
            case Objective.DOLLARS:
                return math.inf if self.dollars is None else self.dollars


def fixed_strategies(problem: Problem) -> tuple[Strategy, ...]:
    """All of them: one route for each type, such that no two options run the same component."""
    found: dict[frozenset[str], None] = {frozenset(): None}
    for kind, share in problem.shares.items():
        if share > 0:
            routes = dict.fromkeys(frozenset(route.seconds) for route in problem.usable if route.type == kind)
            found = dict.fromkeys(
                chosen | route for chosen in found for route in routes if _once(problem, chosen | route)
            )
    order = {option.name: index for index, option in enumerate(problem.options)}
    strategies = [Strategy(tuple(sorted(options, key=order.__getitem__))) for options in found]
    strategies = [strategy for strategy in strategies if all(_load(problem, strategy).values())]
    return tuple(sorted(strategies, key=lambda strategy: (len(strategy.options), strategy.name)))


def rates_reached(problem: Problem, budget: Budget) -> tuple[Reached, ...]:
    """What each strategy serves within a budget, best first. Those that do not fit are left out, and so are those that
    the budget does not limit."""
    reached = []
    for strategy in fixed_strategies(problem):
        load = _load(problem, strategy)
        replicas = dict.fromkeys(strategy.options, 1)
        if not budget.allows(problem, replicas) or not budget.limits(problem, strategy.options):
            continue
        reached.append(_reached(problem, strategy, _fill(problem, budget, load, replicas), load))
        even = _even(problem, strategy, budget)
        if len(even) > 1 and all(even.values()) and budget.allows(problem, even):
            reached.append(_reached(problem, strategy, even, load, even=True))
    return tuple(sorted(reached, key=lambda found: (-found.rate, found.gpus, len(found.replicas))))


def costs_reached(problem: Problem, rate: float, objective: Objective = Objective.GPUS) -> tuple[Reached, ...]:
    """What each strategy takes for a rate, cheapest first."""
    reached = []
    for strategy in fixed_strategies(problem):
        load = _load(problem, strategy)
        needed = {name: max(1, math.ceil(work * rate - ROUNDING)) for name, work in load.items()}
        reached.append(_reached(problem, strategy, needed, load, rate=rate))
        if len(needed) > 1:
            each = max(problem.option[name].gpus * count for name, count in needed.items())
            even = {name: each // problem.option[name].gpus for name in needed}
            reached.append(_reached(problem, strategy, even, load, rate=rate, even=True))
    return tuple(sorted(reached, key=lambda found: (found.value(objective), found.gpus, len(found.replicas))))


def _once(problem: Problem, options: frozenset[str]) -> bool:
    components = [component for name in options for component in problem.option[name].components]
    return len(components) == len(set(components))


def _load(problem: Problem, strategy: Strategy) -> dict[str, float]:
    """Seconds that a mean request takes of each option."""
    load = dict.fromkeys(strategy.options, 0.0)
    for kind, share in problem.shares.items():
        if share > 0:
            for name, seconds in _route(problem, strategy, kind).seconds.items():
                load[name] += share * seconds
    return load


def _route(problem: Problem, strategy: Strategy, kind: str) -> Route:
    routes = [r for r in problem.usable if r.type == kind and r.seconds.keys() <= set(strategy.options)]
    return min(routes, key=lambda route: sum(route.seconds.values()))


def _fill(problem: Problem, budget: Budget, load: Mapping[str, float], replicas: Mapping[str, int]) -> dict[str, int]:
    """One more replica of the option that limits the rate, for as long as the budget allows: no fewer reach a rate."""
    filled = dict(replicas)
    while True:
        slowest = min(load, key=lambda name: filled[name] / load[name])
        filled[slowest] += 1
        if not budget.allows(problem, filled):
            filled[slowest] -= 1
            return filled


def _even(problem: Problem, strategy: Strategy, budget: Budget) -> dict[str, int]:
    if budget.gpus is None:
        return {}
    each = budget.gpus // len(strategy.options)
    return {name: each // problem.option[name].gpus for name in strategy.options}


def _reached(
    problem: Problem,
    strategy: Strategy,
    replicas: Mapping[str, int],
    load: Mapping[str, float],
    rate: float | None = None,
    even: bool = False,
) -> Reached:
    if rate is None:
        rate = min(replicas[name] / work for name, work in load.items())
    gpus = sum(problem.option[name].gpus * count for name, count in replicas.items())
    return Reached(strategy, even, replicas, rate, gpus, problem.dollars(replicas))
