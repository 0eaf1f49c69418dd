"""Systems of the papers as plans of the simulator: replicas, and the seconds that requests of each type take there."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import NamedTuple

import numpy as np

from cornserve_planner.plan_file.build import PlannedParts, plan_file
from cornserve_planner.plan_file.document import PlanFile, planning_problem
from cornserve_planner.plan_file.parts import (
    PlannedComponent,
    PlannedInput,
    PlannedModalities,
    PlannedModel,
    PlannedOption,
    PlannedPath,
    PlannedStep,
    PlannedType,
    Provenance,
)
from cornserve_planner.plan_file.provenance import PlanOrigin
from cornserve_planner.simulation.executor_model import executor_models
from cornserve_planner.simulation.measurements import SimulationMeasurements
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_planner.simulation.simulation_result import SimulationRequest, SimulationResult, simulate_plan
from cornserve_planner.solve.cells import Cell
from cornserve_planner.solve.given_replicas import solve_replicas
from cornserve_policies.registry import DEFAULT_ROUTING, routing_policy

LLM = "llm"

REQUESTS = 2000

BURST_SECONDS = 1200.0

STARTUP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class StageOption:
    """A deployment option.

    Args:
        components: those that a replica runs.
        executor: options with one executor share their replicas.
        gpus: GPUs of a replica.
    """

    components: tuple[str, ...]
    executor: str
    gpus: int = 1


class StageStep(NamedTuple):
    """A step of a path: the components that an option runs there, and the seconds of a replica's time."""

    option: str
    components: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class StageLoad:
    """A request type: its share of all requests, and the steps of its path."""

    share: float
    steps: tuple[StageStep, ...]


def system_plan(
    options: Mapping[str, StageOption], types: Mapping[str, StageLoad], replicas: Mapping[str, int]
) -> PlanFile:
    """Returns the plan of a system: encoders, and a language model that reads their outputs.

    Args:
        replicas: by option.
    """
    planned = {
        name: PlannedOption(
            components=option.components,
            task="Stage",
            settings={"executor": option.executor},
            gpu_type=None,
            gpus=option.gpus,
            batch=None,
            memory=None,
            max_utilization=1.0,
            startup=None,
            limits=None,
        )
        for name, option in options.items()
    }
    encoders = sorted({*chain(*(option.components for option in options.values()))} - {LLM})
    modalities = PlannedModalities(always=(LLM,), inputs={"image": (*encoders,)}, outputs={})
    of_types = {name: _planned_type(load) for name, load in types.items()}
    parts = PlannedParts(
        models={"system": PlannedModel(modalities=modalities)},
        components={
            **{name: PlannedComponent(after=()) for name in encoders},
            LLM: PlannedComponent(after=(*encoders,)),
        },
        gpu_types={},
        options=planned,
        types=of_types,
    )
    problem = planning_problem(planned, of_types, {})
    plan = solve_replicas(problem, replicas)
    source = PlannedInput(kind="profile", file="a figure of a paper", shipped=True, sha256="0" * 64)
    origin = PlanOrigin((source,), Provenance(rates=(), factors={}, options={}))
    return plan_file(parts, problem, (Cell(plan.gpus, plan.capacity, plan),), {plan.gpus: 1}, None, origin)


def _planned_type(load: StageLoad) -> PlannedType:
    steps = (
        PlannedStep(
            option=option,
            components=components,
            binding=None,
            seconds=seconds,
            low=seconds,
            high=seconds,
            tag="published",
        )
        for option, components, seconds in load.steps
    )
    return PlannedType(
        model="system",
        components=(*chain(*(step.components for step in load.steps)),),
        share=load.share,
        paths=(PlannedPath(steps=(*steps,)),),
    )


def simulate(
    plan: PlanFile,
    rate: float,
    *,
    count: int = REQUESTS,
    routing: str = DEFAULT_ROUTING,
    settings: ServingSettings | None = None,
) -> SimulationResult:
    """Simulates Poisson arrivals of a plan's types."""
    request = SimulationRequest(
        plan, "a figure", rate=rate, count=count, routing=routing, settings=settings or ServingSettings()
    )
    return simulate_plan(request)


def first_tokens(result: SimulationResult) -> Sequence[float]:
    """Returns the times to the first token of all requests."""
    return _first_tokens(result.measurements)


def first_token_times(
    plan: PlanFile, requests: Iterable[SimulatedRequest], routing: str, settings: ServingSettings
) -> Sequence[float]:
    """Simulates requests, and returns the times to their first tokens."""
    return _first_tokens(_simulated(plan, requests, routing, settings)[1])


def _simulated(
    plan: PlanFile, requests: Iterable[SimulatedRequest], routing: str, settings: ServingSettings
) -> tuple[ServingSimulation, SimulationMeasurements]:
    measurements = SimulationMeasurements()
    simulation = ServingSimulation(plan, executor_models(plan, None), routing_policy(routing), settings, measurements)
    measurements.events = simulation.events
    simulation.run(requests)
    return simulation, measurements


def _first_tokens(measurements: SimulationMeasurements) -> Sequence[float]:
    return [*chain(*(columns["ttft"].seconds for columns in measurements.latencies.values()))]


def p99(seconds: Iterable[float]) -> float:
    return float(np.percentile([*seconds], 99))


@dataclass(frozen=True, slots=True)
class ScaledLoad:
    """The GPU-hours of an autoscaled system, the times to the first token, and the times of the changes of replicas."""

    gpu_hours: float
    seconds: Sequence[float]
    changes: Sequence[float]

    def attainment(self, target: float) -> float:
        """Returns the share of requests with the first token within the target."""
        return fmean(each <= target for each in self.seconds)


def scaled_load(
    plan: PlanFile,
    autoscaled: Mapping[str, float],
    requests: Iterable[SimulatedRequest],
    ttft: float | None = None,
    **times: float,
) -> ScaledLoad:
    """Simulates requests of a system with autoscaling.

    Args:
        autoscaled: by option, the requests/s that one of its replicas takes.
        ttft: a target, which also starts replicas when it is missed.
        times: those of the autoscaling, unless by default.
    """
    startup = (STARTUP_SECONDS,)
    settings = ServingSettings(ttft=ttft, autoscaled=autoscaled, autoscaling_times=times, startup=startup)
    simulation, measurements = _simulated(plan, requests, DEFAULT_ROUTING, settings)
    assert simulation.autoscaling is not None
    hours = sum(simulation.cells.gpu_seconds(measurements.end).values()) / 3600
    return ScaledLoad(hours, _first_tokens(measurements), [change.seconds for change in simulation.autoscaling.changes])


def burst(rates: Mapping[str, float], bursting: Container[str]) -> Iterator[SimulatedRequest]:
    """Yields random requests of 80 minutes, with three times the rate of some types for `BURST_SECONDS`.

    Args:
        rates: requests/s by type.
    """
    rng, now, number = random.Random(1), 0.0, 0
    usual = dict(rates)
    tripled = {name: rate * (3 if name in bursting else 1) for name, rate in rates.items()}
    while now < 4 * BURST_SECONDS:
        present = tripled if BURST_SECONDS <= now < 2 * BURST_SECONDS else usual
        now += rng.expovariate(sum(present.values()))
        number += 1
        kind = next(iter(present)) if len(present) == 1 else rng.choices([*present], [*present.values()])[0]
        yield SimulatedRequest(f"request {number}", now, kind, None, None, None)
