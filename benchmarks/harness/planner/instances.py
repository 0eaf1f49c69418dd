"""Random planning problems that resemble those of real models.

The components form a chain. Each request type needs the language model and some other components. Options run one
component, all components, or a random set. For each type, some ways to divide its components among options are paths,
always including the one with the fewest executors. Times of components differ by two orders of magnitude, as in [C
Table 1]. Colocated components take 0.85 to 1.3 times the sum of their times (α of [C Algorithm 3]). Some options use
two GPUs and are 2^0.9 times as fast.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cornserve_planner.model.graph import DeploymentOption, PathStep
from cornserve_planner.model.problem import PlanningProblem, RequestPath

_Split = tuple[frozenset[int], ...]


@dataclass(frozen=True, slots=True)
class ProblemSize:
    name: str
    components: int
    types: int
    options: int
    routes: int
    """Paths of all types together, at most."""


MULTIMODAL_LLM = ProblemSize("two components", components=2, types=2, options=3, routes=6)
OMNI = ProblemSize("four components", components=4, types=8, options=10, routes=32)
LARGE = ProblemSize("six components", components=6, types=16, options=30, routes=60)
MANY_ROUTES = ProblemSize("six components, many routes", components=6, types=16, options=30, routes=640)


def random_problem(seed: int, size: ProblemSize) -> PlanningProblem:
    rng = random.Random(seed)
    sets = _options(rng, size)
    gpus = {option: 2 if rng.random() < 0.3 else 1 for option in sets}
    alone = [10 ** rng.uniform(-1.5, 0.6) for _ in range(size.components)]
    alpha = {option: 1.0 if len(option) == 1 else rng.uniform(0.85, 1.3) for option in sets}
    kinds = _types(rng, size)
    weights = [rng.random() ** 2 + 0.02 for _ in kinds]
    paths = []
    for kind in kinds:
        for split in _some(rng, [*_splits(kind, sets)], max(2, size.routes // len(kinds))):
            seconds, steps, left = {}, [], set(kind)
            for option in split:
                role = left & option
                left -= role
                together = alpha[option] * sum(alone[component] for component in role)
                seconds[_name(option)] = together / gpus[option] ** 0.9
                steps.append(PathStep(_name(option), tuple(f"c{component}" for component in sorted(role))))
            paths.append(RequestPath(_name(kind), " → ".join(seconds), seconds, tuple(steps)))
    return PlanningProblem(
        options=tuple(
            DeploymentOption(_name(option), tuple(f"c{component}" for component in sorted(option)), gpus[option])
            for option in sets
        ),
        shares={_name(kind): weight / sum(weights) for kind, weight in zip(kinds, weights, strict=True)},
        paths=tuple(paths),
    )


def _options(rng: random.Random, size: ProblemSize) -> list[frozenset[int]]:
    every = range(size.components)
    sets = [*(frozenset([component]) for component in every), frozenset(every)]
    others = [frozenset(some) for count in every[2:] for some in itertools.combinations(every, count)]
    rng.shuffle(others)
    return sets + others[: max(0, size.options - len(sets))]


def _types(rng: random.Random, size: ProblemSize) -> list[tuple[int, ...]]:
    language_model = size.components // 2
    found: dict[tuple[int, ...], None] = {}
    while len(found) < min(size.types, 2 ** (size.components - 1)):
        found[
            tuple(
                component for component in range(size.components) if component == language_model or rng.random() < 0.5
            )
        ] = None
    return [*found]


def _splits(needed: Sequence[int], options: Sequence[frozenset[int]]) -> Iterator[_Split]:
    """Yields the ways to run components in order, each option at most once."""
    if not needed:
        yield ()
        return
    for option in options:
        if needed[0] in option:
            left = [component for component in needed if component not in option]
            yield from ((option, *rest) for rest in _splits(left, [other for other in options if other != option]))


def _some(rng: random.Random, splits: list[_Split], count: int) -> list[_Split]:
    rng.shuffle(splits)
    splits.sort(key=len)
    return splits[:1] + rng.sample(splits[1:], min(len(splits) - 1, count - 1))


def _name(components: frozenset[int] | tuple[int, ...]) -> str:
    return "".join(chr(ord("A") + component) for component in sorted(components))
