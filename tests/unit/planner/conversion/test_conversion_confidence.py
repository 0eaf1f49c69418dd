"""Confidence of conversions: synthetic executors with known times, measured with errors."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cornserve_planner.conversion.rate_confidence import rate_draws
from cornserve_planner.conversion.throughput_conversion import ThroughputConversion, convert, interval
from cornserve_planner.conversion.throughput_measurement import ThroughputMeasurement
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import (
    DeclaredPath,
    DeploymentOption,
    ExecutorGraph,
    ModelComponent,
    PathStep,
    RequestType,
)
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Solution
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.optimization import max_rate
from tests.unit.planner.examples import examples

NOISE = 0.05
COMPONENTS = ("image", "audio", "llm")
OPTIONS = (
    DeploymentOption("I", ("image",)),
    DeploymentOption("A", ("audio",)),
    DeploymentOption("L", ("llm",)),
    DeploymentOption("IL", ("image", "llm")),
    DeploymentOption("M", COMPONENTS),
)
TYPES = tuple(
    RequestType("+".join((*media, "llm")), frozenset((*media, "llm")))
    for count in range(3)
    for media in itertools.combinations(("image", "audio"), count)
)


def graph(*paths: tuple[str, ...]) -> ExecutorGraph:
    components = (ModelComponent("image"), ModelComponent("audio"), ModelComponent("llm", after=("image", "audio")))
    return ExecutorGraph(components, OPTIONS, tuple(map(DeclaredPath, paths)))


ALL = graph(("M",), ("I", "M"), ("A", "IL"), ("I", "A", "L"))


@dataclass(frozen=True)
class Executors:
    """Executors whose components overlap (factors below 1) or interfere (above 1), each to a different degree."""

    seconds: Mapping[tuple[str, str], float]
    rng: np.random.Generator

    @classmethod
    def random(cls, rng: np.random.Generator) -> Executors:
        alone = {name: float(np.exp(rng.uniform(-2, 0.5))) for name in COMPONENTS}
        together = {option.name: float(np.exp(rng.uniform(-0.2, 0.5))) for option in OPTIONS}
        seconds = {}
        for option in OPTIONS:
            for name in option.components:
                own = together[option.name] * float(np.exp(rng.normal(0, 0.25)))
                seconds[option.name, name] = alone[name] * (own if len(option.components) > 1 else 1)
        return cls(seconds, rng)

    def measure(self, option: str, mix: Mapping[str, float]) -> ThroughputMeasurement:
        kinds = {kind.name: kind.components for kind in TYPES}
        mean = sum(
            share * sum(self.seconds.get((option, component), 0.0) for component in kinds[name])
            for name, share in mix.items()
        )
        return ThroughputMeasurement(option, 1 / mean * float(np.exp(self.rng.normal(0, NOISE))), mix)

    def of(self, step: PathStep) -> float:
        return sum(self.seconds[step.option, component] for component in step.role)

    def mix(self) -> dict[str, float]:
        shares = self.rng.dirichlet(np.ones(len(TYPES)))
        return {kind.name: float(share) for kind, share in zip(TYPES, shares, strict=True)}


ALONE = {"image+audio+llm": 1.0}


@examples(50, 150)
def test_intervals_contain_the_true_times_of_measured_options(examples: int) -> None:
    contained = []
    for seed in range(examples):
        truth = Executors.random(np.random.default_rng(seed))
        single = [truth.measure(option, ALONE) for option in ("I", "A", "L")]
        shared = [truth.measure(option, truth.mix()) for option in ("IL", "M") for _ in range(1 + seed % 3)]
        conversion = convert(ALL, TYPES, single + shared)
        contained += contains(conversion, ALL, truth)

    assert 0.92 < np.mean(contained) < 0.99


@examples(100, 300)
def test_intervals_contain_the_true_times_of_components_that_no_option_runs_alone(examples: int) -> None:
    monolith = graph(("M",))
    contained, refused = [], 0
    for seed in range(examples):
        truth = Executors.random(np.random.default_rng(seed))
        measurements = [truth.measure("M", truth.mix()) for _ in range(3 + seed % 4)]
        try:
            conversion = convert(monolith, TYPES, measurements)
        except InvalidInputError:
            refused += 1
        else:
            contained += contains(conversion, monolith, truth)

    assert np.mean(contained) > 0.9
    assert examples / 10 < refused < examples * 0.9


def contains(conversion: ThroughputConversion, model: ExecutorGraph, truth: Executors) -> list[bool]:
    """Returns, for each time on a path, whether its interval contains the truth."""
    return [
        (found := conversion.time(kind, step)).low <= truth.of(step) <= found.high
        for kind in TYPES
        for valid in model.valid_paths(kind)
        for step in valid.steps
    ]


ENCODER_AND_LLM = ExecutorGraph(
    (ModelComponent("image"), ModelComponent("llm", after=("image",))),
    (DeploymentOption("IL", ("image", "llm")),),
    (DeclaredPath(("IL",)),),
)


def two_mixes(seed: int, low: float, high: float) -> ThroughputConversion:
    """Returns the conversion of two mixes with these shares of images. An image takes 0.3 s, and text 0.7 s."""
    noise = np.exp(np.random.default_rng(seed).normal(0, NOISE, 2))
    return convert(
        ENCODER_AND_LLM,
        TYPES[:2],
        [
            ThroughputMeasurement("IL", float(error) / (0.7 + 0.3 * share), {"llm": 1 - share, "image+llm": share})
            for share, error in zip((low, high), noise, strict=True)
        ],
    )


def test_mixes_that_are_too_similar_are_refused_with_advice() -> None:
    for seed in range(200):
        with pytest.raises(InvalidInputError, match=r"measurements of IL: (the mixes|contradict)"):
            two_mixes(seed, 0.45, 0.55)
    with pytest.raises(InvalidInputError) as caught:
        two_mixes(1, 0.45, 0.55)
    assert str(caught.value) == (
        "measurements of IL: the mixes (55% llm, 45% image+llm) and (45% llm, 55% image+llm) are too similar to "
        "separate image: with errors of 5% it takes 0.0949 ± 0.71 s: measure image alone, or IL with mixes that differ "
        "more, such as one that does not need image and one that always does"
    )


def test_mixes_that_differ_are_accepted() -> None:
    found = [two_mixes(seed, 0.0, 1.0).time(TYPES[1], STEP) for seed in range(100)]

    assert np.mean([time.low <= 1.0 <= time.high for time in found]) >= 0.9
    assert all(time.high - time.low < 0.4 for time in found)


STEP = PathStep("IL", ("image", "llm"))


def test_the_stated_error_replaces_the_default() -> None:
    exact, rough = (
        convert(ENCODER_AND_LLM, TYPES[:2], [replace(m, error=error) for m in EXACT]).time(TYPES[1], STEP)
        for error in (0.001, 0.1)
    )

    assert exact.high - exact.low < 0.25 < 0.35 < rough.high - rough.low


EXACT = [ThroughputMeasurement("IL", 1 / 0.7, {"llm": 1.0}), ThroughputMeasurement("IL", 1.0, {"image+llm": 1.0})]


def test_a_time_has_the_weakest_tag_and_all_sources_of_its_rates() -> None:
    text, image = (replace(m, source=source) for m, source in zip(EXACT, ("bench 1", "bench 2"), strict=True))
    conversion = convert(ENCODER_AND_LLM, TYPES[:2], [replace(text, tag="predicted", error=0.05), image])

    of_text = conversion.time(TYPES[0], PathStep("IL", ("llm",)))
    assert (of_text.tag, of_text.source) == ("predicted", "bench 1")
    assert conversion.time(TYPES[1], STEP).source == "bench 1; bench 2"


@examples(20, 60)
def test_the_rate_of_a_plan_is_within_its_interval(examples: int) -> None:
    inside = []
    for seed in range(examples):
        truth = Executors.random(np.random.default_rng(seed))
        shares = truth.mix()
        single = [truth.measure(option, ALONE) for option in ("I", "A", "L")]
        conversion = convert(ALL, TYPES, [*single, *(truth.measure(option, truth.mix()) for option in ("IL", "M"))])
        problem = PlanningProblem.from_graph(ALL, {kind: shares[kind.name] for kind in TYPES}, conversion)
        plan = max_rate(problem, Budget(gpus=8))

        low, high = interval(rate_draws(problem, TYPES, conversion.drawn, plan))

        inside.append(low <= simulated_rate(problem, plan, truth) <= high)

    assert np.mean(inside) >= 0.9


def simulated_rate(problem: PlanningProblem, plan: Solution, truth: Executors, requests: int = 1000) -> float:
    """Returns requests per second of a plan whose queues are never empty, with the true times."""
    steps = {(path.type, path.name): path.steps for path in problem.paths}
    rates = np.array([entry.rate for entry in plan.rates])
    counts = np.maximum(1, np.rint(requests * rates / rates.sum())).astype(int)
    chosen = truth.rng.permutation(np.repeat(np.arange(len(rates)), counts))
    routed = [steps[plan.rates[index].type, plan.rates[index].path] for index in chosen]
    waiting: dict[str, deque[tuple[int, int]]] = {name: deque() for name in plan.replicas}
    idle = dict(plan.replicas)
    events = [(0.0, request, 0, "") for request in range(len(routed))]
    """The time, a request, its next step, and the option that it leaves."""
    now = 0.0
    while events:
        now, request, position, left = heapq.heappop(events)
        route = routed[request]
        if left:
            idle[left] += 1
        if position < len(route):
            waiting[route[position].option].append((request, position))
        for name in {left, *(step.option for step in route[position : position + 1])} - {""}:
            while idle[name] and waiting[name]:
                other, place = waiting[name].popleft()
                idle[name] -= 1
                heapq.heappush(events, (now + truth.of(routed[other][place]), other, place + 1, name))
    return len(routed) / now
