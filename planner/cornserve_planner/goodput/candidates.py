"""The plans among which replay decides: role mixes, the MILP's plans, the monolith and hybrids [T §4.4]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from cornserve_planner.errors import InfeasibleError
from cornserve_planner.model.graph import ExecutorGraph
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.optimization import max_rate

MOST_MIXES = 64
"""Up to this number of mixes of the same roles, all are candidates; otherwise the best one for mean loads and those
with one replica moved."""

UTILIZATIONS = (0.5, 0.7)
"""The MILP also plans with each option used up to these parts of its time."""


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """Replicas by option.

    Args:
        kind: the roles, such as `E+P+D`, or the way in which the candidate was found.
        bound: the highest requests per second without queues.
    """

    kind: str
    replicas: Mapping[str, int]
    bound: float


def find_candidates(problem: PlanningProblem, graph: ExecutorGraph, budget: Budget) -> list[PlanCandidate]:
    """Returns the candidates within a budget, without duplicates, the highest bound first.

    Args:
        problem: with the seconds of requests at the budgets of the stages.

    Raises `InfeasibleError` if no plan is within the budget.
    """
    kinds: dict[tuple[tuple[str, int], ...], str] = {}

    def add(kind: str, replicas: Mapping[str, int]) -> None:
        kinds.setdefault(tuple(sorted(replicas.items())), kind)

    structures = role_structures(problem, graph)
    for options in structures:
        for mix in role_mixes(problem, options, budget):
            add("monolith" if len(options) == 1 else "+".join(options), mix)
    whole = max_rate(problem, budget)
    add("MILP", filled(problem, whole.replicas, budget))
    for name in whole.replicas:
        for utilization in UTILIZATIONS:
            limited = replace(problem, max_utilization={name: utilization})
            add("MILP", filled(problem, max_rate(limited, budget).replicas, budget))
    for alone in (options for options in structures if len(options) == 1):
        for options in structures:
            if len(options) > 1:
                for mix in hybrids(problem, alone[0], options, budget):
                    add("hybrid", mix)
    found = [PlanCandidate(kind, dict(key), capacity(problem, dict(key))[0]) for key, kind in kinds.items()]
    return sorted((each for each in found if each.bound > 0), key=lambda each: -each.bound)


def role_structures(problem: PlanningProblem, graph: ExecutorGraph) -> list[tuple[str, ...]]:
    """Returns the sets of options of one path each that serve all types of the workload."""
    needed = {name for name, share in problem.shares.items() if share}
    found: dict[tuple[str, ...], None] = {}
    for path in graph.paths:
        options = tuple(dict.fromkeys(path.options))
        served = {each.type for each in problem.usable if each.seconds.keys() <= {*options}}
        if needed <= served:
            found[options] = None
    return list(found)


def role_mixes(problem: PlanningProblem, options: Sequence[str], budget: Budget) -> list[dict[str, int]]:
    """Returns the mixes of these options that use the budget: all if there are few, or the best one and its neighbors.

    A mix has at least one replica of each option.
    """
    found = list(islice(_compositions(problem, options, budget), MOST_MIXES + 1))
    if len(found) <= MOST_MIXES:
        return found
    best = heuristic_mix(problem, options, budget)
    mixes = [best] if best else []
    for less in best:
        for more in best:
            moved = {**best, less: best[less] - 1, more: best[more] + 1}
            if less != more and moved[less] and budget.allows(problem, moved):
                mixes.append(moved)
    return mixes


def heuristic_mix(problem: PlanningProblem, options: Sequence[str], budget: Budget) -> dict[str, int]:
    """Returns the mix whose replicas are in the ratio of the loads of their stages [T Alg. 2]; empty if none fits."""
    try:
        plan = max_rate(problem.restricted_to(options), budget)
    except InfeasibleError:
        return {}
    return filled(problem, plan.replicas, budget)


def hybrids(problem: PlanningProblem, alone: str, options: Sequence[str], budget: Budget) -> Iterator[dict[str, int]]:
    """Yields mixes of roles next to 1, 2, 4, … monoliths."""
    if budget.gpus is None:
        return
    count, size = 1, problem.option[alone].gpus
    while (left := budget.gpus - count * size) > 0:
        if mix := heuristic_mix(problem, options, replace(budget, gpus=left)):
            merged = {**mix, alone: mix.get(alone, 0) + count}
            if budget.allows(problem, merged):
                yield merged
        count *= 2


def filled(problem: PlanningProblem, replicas: Mapping[str, int], budget: Budget) -> dict[str, int]:
    """Returns the replicas with more of those that are loaded most, until the budget is used."""
    found = dict(replicas)
    work: dict[str, float] = {}
    for path in problem.usable:
        for name, seconds in path.seconds.items():
            work[name] = work.get(name, 0.0) + problem.shares[path.type] * seconds
    while True:
        more = [name for name in found if budget.allows(problem, {**found, name: found[name] + 1})]
        if not more or not budget.limits(problem, found):
            return found
        busiest = max(more, key=lambda name: (work.get(name, 0.0) / found[name], name))
        found[busiest] += 1


def _compositions(problem: PlanningProblem, options: Sequence[str], budget: Budget) -> Iterator[dict[str, int]]:
    """Yields all replicas, at least one of each option, to which no replica can be added."""

    def extend(chosen: dict[str, int], left: Sequence[str]) -> Iterator[dict[str, int]]:
        if not left:
            if not any(budget.allows(problem, {**chosen, name: chosen[name] + 1}) for name in chosen):
                yield chosen
            return
        count = 1
        rest = dict.fromkeys(left[1:], 1)
        while budget.allows(problem, {**chosen, left[0]: count, **rest}):
            yield from extend({**chosen, left[0]: count}, left[1:])
            count += 1

    if budget.limits(problem, options):
        yield from extend({}, options)
