"""Executors whose times are not additive, and how often the planner's intervals contain their true times and rates.

Each executor is measured with a few mixes, with the stated errors. The requests to plan have another mix.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

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

Kind = Literal["additive", "overlapping", "interfering"]
KINDS: tuple[Kind, ...] = get_args(Kind)

NOISE = 0.05
"""Relative standard error of the measurements, which is the default of the planner."""
DEVIATION = 0.25
"""Standard deviation of the factors of one additive executor's components."""
INTERFERENCE = 3.0
"""The largest interference of an executor. If two components use equal time, requests take 1 + 3 / 2 times as long."""
GPUS = 8

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
Role: TypeAlias = tuple[str, ...]
"""The components that an option runs for a request."""


def _graph(*paths: tuple[str, ...]) -> ExecutorGraph:
    components = (ModelComponent("image"), ModelComponent("audio"), ModelComponent("llm", after=("image", "audio")))
    return ExecutorGraph(components, OPTIONS, tuple(map(DeclaredPath, paths)))


SPLIT = _graph(("M",), ("I", "M"), ("A", "IL"), ("I", "A", "L"))
MONOLITH = _graph(("M",))


class SyntheticExecutors:
    """Executors of one kind: the seconds of their components are drawn at random."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self._kind = kind
        self._rng = rng = np.random.default_rng([seed, KINDS.index(kind)])
        alone = {name: float(np.exp(rng.uniform(-2, 0.5))) for name in COMPONENTS}
        self._parts: dict[tuple[str, str], float] = {}
        for option in OPTIONS:
            together = float(np.exp(rng.uniform(-0.2, 0.5)))
            for name in option.components:
                own = together * float(np.exp(rng.normal(0, DEVIATION))) if kind == "additive" else together
                self._parts[option.name, name] = alone[name] * (own if len(option.components) > 1 else 1.0)
        self._overlap = {option.name: float(rng.uniform(0, 1)) for option in OPTIONS}
        self._interference = {option.name: float(rng.uniform(0, INTERFERENCE)) for option in OPTIONS}

    def seconds(self, option: str, mix: Mapping[Role, float]) -> dict[Role, float]:
        """Returns the true seconds of each role, while the option serves a mix of them.

        Components of a request overlap: it takes between the longest and the sum of their seconds. Interference slows
        all requests down by the probability that two random seconds of the executor belong to different components.
        """
        parts = {role: [self._parts[option, name] for name in role] for role in mix}
        seconds = {role: sum(found) for role, found in parts.items()}
        if self._kind == "overlapping":
            overlap = self._overlap[option]
            return {role: (1 - overlap) * seconds[role] + overlap * max(parts[role], default=0.0) for role in mix}
        if self._kind == "interfering":
            used = [
                sum(share * self._parts[option, name] for role, share in mix.items() if name in role)
                for name in COMPONENTS
                if (option, name) in self._parts
            ]
            different = 1 - sum((each / sum(used)) ** 2 for each in used)
            return {role: each * (1 + self._interference[option] * different) for role, each in seconds.items()}
        return seconds

    def mean_seconds(self, option: str, mix: Mapping[Role, float]) -> float:
        seconds = self.seconds(option, mix)
        return sum(share * seconds[role] for role, share in mix.items())

    def measure(self, option: str, mix: Mapping[str, float]) -> ThroughputMeasurement:
        runs = next(each.components for each in OPTIONS if each.name == option)
        roles: dict[Role, float] = {}
        for kind in TYPES:
            role = tuple(name for name in runs if name in kind.components)
            roles[role] = roles.get(role, 0.0) + mix.get(kind.name, 0.0)
        rate = 1 / self.mean_seconds(option, roles)
        return ThroughputMeasurement(option, rate * float(np.exp(self._rng.normal(0, NOISE))), mix, error=NOISE)

    def mix(self) -> dict[str, float]:
        shares = self._rng.dirichlet(np.ones(len(TYPES)))
        return {kind.name: float(share) for kind, share in zip(TYPES, shares, strict=True)}


def _measured(executors: SyntheticExecutors, design: int) -> tuple[ExecutorGraph, list[ThroughputMeasurement]]:
    """Returns a model and measurements of it. The designs are 1 to 3 random mixes of each option with several
    components, and each type and a mix of them, as `cornserve profile` measures; then the same for a model without
    options for single components."""
    types = [{kind.name: 1.0} for kind in TYPES]
    alone = [executors.measure(option, types[-1]) for option in ("I", "A", "L")]
    match design:
        case 0 | 1 | 2:
            mixes = [(option, executors.mix()) for option in ("IL", "M") for _ in range(1 + design)]
        case 3:
            mixes = [("IL", mix) for mix in (*types[:2], executors.mix())]
            mixes += [("M", mix) for mix in (*types, executors.mix())]
        case 4:
            mixes = [("M", executors.mix()) for _ in range(5)]
        case _:
            mixes = [("M", mix) for mix in (*types, executors.mix())]
    shared = [executors.measure(option, mix) for option, mix in mixes]
    return (SPLIT, alone + shared) if design <= 3 else (MONOLITH, shared)


DESIGNS = 6


@dataclass(frozen=True, slots=True)
class IntervalCheck:
    """
    Args:
        inside: whether the interval contains the truth.
        width: its width, relative to the estimate.
    """

    inside: bool
    width: float

    @classmethod
    def of(cls, low: float, estimate: float, high: float, truth: float) -> IntervalCheck:
        return cls(low <= truth <= high, (high - low) / estimate)


@dataclass(frozen=True, slots=True)
class IntervalCoverage:
    """The share of intervals that contain the truth, and their median width relative to the estimate."""

    kind: Kind
    count: int
    inside: float
    width: float

    @classmethod
    def of(cls, kind: Kind, checks: Iterable[IntervalCheck]) -> IntervalCoverage:
        found = list(checks)
        inside = float(np.mean([check.inside for check in found]))
        return cls(kind, len(found), inside, float(np.median([check.width for check in found])))


def coverage(kind: Kind, seeds: Iterable[int]) -> tuple[IntervalCoverage, IntervalCoverage]:
    """Returns the coverage of times of options with several components, and of rates of plans.

    Measurements that the planner refuses, because their mixes are too similar, are left out.
    """
    times: list[IntervalCheck] = []
    rates: list[IntervalCheck] = []
    for seed in seeds:
        executors = SyntheticExecutors(kind, seed)
        graph, measurements = _measured(executors, seed // 2 % DESIGNS)
        shares = executors.mix()
        try:
            conversion = convert(graph, TYPES, measurements)
        except InvalidInputError:
            continue
        times += _time_checks(graph, conversion, executors, shares)
        rates.append(_rate_check(graph, conversion, executors, shares))
    return IntervalCoverage.of(kind, times), IntervalCoverage.of(kind, rates)


def _time_checks(
    graph: ExecutorGraph, conversion: ThroughputConversion, executors: SyntheticExecutors, shares: Mapping[str, float]
) -> Iterator[IntervalCheck]:
    """Checks the times on each path, while all requests take this path."""
    for path in graph.paths:
        used: dict[str, dict[Role, tuple[RequestType, PathStep, float]]] = {}
        for kind in TYPES:
            own = (found.steps for found in graph.valid_paths(kind))
            for step in next(steps for steps in own if {each.option for each in steps} <= {*path.options}):
                _, _, share = used.setdefault(step.option, {}).get(step.role, (kind, step, 0.0))
                used[step.option][step.role] = kind, step, share + shares[kind.name]
        for option, roles in used.items():
            seconds = executors.seconds(option, {role: share for role, (_, _, share) in roles.items()})
            for role, (kind, step, _) in roles.items():
                if option in ("IL", "M"):
                    time = conversion.time(kind, step)
                    yield IntervalCheck.of(time.low, time.seconds, time.high, seconds[role])


def _rate_check(
    graph: ExecutorGraph, conversion: ThroughputConversion, executors: SyntheticExecutors, shares: Mapping[str, float]
) -> IntervalCheck:
    problem = PlanningProblem.from_graph(graph, {kind: shares[kind.name] for kind in TYPES}, conversion)
    plan = max_rate(problem, Budget(gpus=GPUS))
    low, high = interval(rate_draws(problem, TYPES, conversion.drawn, plan))
    return IntervalCheck.of(low, plan.rate, high, _true_rate(problem, plan, executors))


def _true_rate(problem: PlanningProblem, plan: Solution, executors: SyntheticExecutors) -> float:
    """Returns the requests per second at which the first option is always busy, with the plan's paths."""
    steps = {(path.type, path.name): path.steps for path in problem.paths}
    used: dict[str, dict[Role, float]] = {}
    for entry in plan.rates:
        for step in steps[entry.type, entry.path]:
            roles = used.setdefault(step.option, {})
            roles[step.role] = roles.get(step.role, 0.0) + entry.rate / plan.rate
    return min(plan.replicas[option] / executors.mean_seconds(option, roles) for option, roles in used.items())
