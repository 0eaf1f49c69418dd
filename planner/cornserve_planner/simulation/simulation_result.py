"""Simulates a plan under a workload, and returns the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

from cornserve_planner.errors import InvalidInputError, require_between, require_non_negative, require_positive
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import hourly_price
from cornserve_planner.profiles.profile import ModelProfile
from cornserve_planner.requests.request import LONGEST_SECONDS
from cornserve_planner.simulation.executor_model import ExecutorModel, describe_models, executor_models, startup_times
from cornserve_planner.simulation.measurements import LatencyColumns, SimulationMeasurements, met_share, summarize
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest, read_load
from cornserve_planner.simulation.stage_capacity import StageCapacity, stage_capacities
from cornserve_policies.registry import DEFAULT_ROUTING, UnknownPolicyError, routing_policy
from cornserve_policies.replica_routing import RoutingPolicy

LATENCIES = ("ttft", "tbt", "e2e")

SAMPLE_REQUESTS = 2_000
"""Requests from which the capacities of replicas follow."""

MOST_SIMULATED = 10_000_000
"""The most requests of a simulation, whose latencies need about 1 GB."""


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """The options of one simulation.

    Args:
        name: that of the plan's file or of the app, for the output.
        workload: a file of requests, or of shares of request types; by default, the shares of the plan.
        rate: requests per second; by default, that of the workload or the plan.
        count: the most requests; by default, those of a file, or 10,000.
        routing: the name of a routing policy.
    """

    plan: PlanFile
    name: str
    workload: Path | None = None
    profile: Path | None = None
    rate: float | None = None
    count: int | None = None
    routing: str = DEFAULT_ROUTING
    seed: int = 0
    settings: ServingSettings = field(default_factory=ServingSettings)

    def __post_init__(self) -> None:
        settings = self.settings
        for name, value in (
            ("--rate", self.rate),
            ("--ttft", settings.ttft),
            ("--tbt", settings.tbt),
            ("--e2e", settings.e2e),
            ("--bandwidth", settings.bandwidth),
        ):
            if value is not None:
                require_positive(name, value)
        if self.count is not None:
            require_between("--requests", self.count, 1, MOST_SIMULATED)
        require_between("--latency", settings.latency, 0, LONGEST_SECONDS)
        require_between("--gateway-seconds", settings.gateway_seconds, 0, LONGEST_SECONDS)
        for name, size in settings.transfers.items():
            require_non_negative(f"--transfer {name}", size)
        self._check_transfers()
        for startup in settings.startup or ():
            require_between("--startup", startup, 0, LONGEST_SECONDS)
        if not (settings.adapts or settings.autoscaled) and settings.most_gpus < inf:
            raise InvalidInputError("--most-gpus", "needs --adapt, which starts cells, or --autoscale")
        if settings.most_gpus < self.plan.gpus:
            raise InvalidInputError("--most-gpus", f"is {settings.most_gpus:g}, but the plan has {self.plan.gpus} GPUs")
        if not (settings.adapts or settings.autoscaled or settings.failures) and settings.startup is not None:
            raise InvalidInputError(
                "--startup", "needs --adapt, which starts cells, or --autoscale or --fail, which start replicas"
            )
        if settings.adapts and settings.autoscaled:
            raise InvalidInputError("--autoscale", "excludes --adapt: cells have the replicas of the plan")
        settings.autoscaling_limits(1.0)
        for name in ("ttft", "tbt", "e2e"):
            require_between(f"--{name}", getattr(settings, name) or 0, 0, LONGEST_SECONDS)
        if settings.autoscaling_times and not settings.autoscaled:
            raise InvalidInputError("--autoscale", "has times, but no option: give OPTION or OPTION=RATE")
        for name, capacity in settings.autoscaled.items():
            if capacity is not None:
                require_positive(f"--autoscale {name}", capacity)
            elif settings.ttft is None:
                raise InvalidInputError(f"--autoscale {name}", "needs =RATE, or --ttft, from which the rate follows")
        for name, seconds in settings.failures:
            require_between(f"--fail {name}", seconds, 0, LONGEST_SECONDS)
        if settings.refuses and settings.ttft is None and settings.e2e is None:
            raise InvalidInputError("--refuse", "needs --ttft or --e2e, the targets that refused requests would miss")

    def _check_transfers(self) -> None:
        settings = self.settings
        racks = None if settings.racks is None else settings.racks.bandwidth
        for flag, bandwidth in (("--bandwidth", settings.bandwidth), ("--racks", racks)):
            for name, size in settings.transfers.items():
                if bandwidth is not None and size / bandwidth > LONGEST_SECONDS:
                    raise InvalidInputError(flag, f"a transfer of {name} takes more than 10,000 years: raise it")


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulation.

    Args:
        capacities: the load that one replica takes, by autoscaled option.
        requests: the number that arrived.
    """

    request: SimulationRequest
    capacities: Mapping[str, StageCapacity]
    models: dict[str, str]
    simulation: ServingSimulation
    measurements: SimulationMeasurements
    requests: int

    def as_document(self) -> dict[str, Any]:
        """Returns the fields of `--json`."""
        found = self.measurements
        hours = {name: each / 3600 for name, each in self.simulation.cells.gpu_seconds(found.end).items()}
        adaptation, autoscaling = self.simulation.adaptation, self.simulation.autoscaling
        return {
            "plan": self.request.name,
            "workload": None if self.request.workload is None else self.request.workload.name,
            "routing": self.request.routing,
            "seed": self.request.seed,
            "seconds": found.end,
            "requests": self.requests,
            "completed": found.completed,
            "failed": found.failed,
            "refused": dict(sorted(found.refused.items())),
            "rate": found.completed / found.end if found.end else 0.0,
            "latency": {
                kind: {name: _summary(columns) for name, columns in sorted(of_type.items())}
                for kind, of_type in sorted(found.latencies.items())
            },
            "attainment": self._attainment(),
            "stages": {name: _summary(columns) for name, columns in sorted(found.stages.items())},
            "paths": self._paths(),
            "executors": self._executors(),
            "changes": [] if adaptation is None else [asdict(change) for change in adaptation.changes],
            "capacities": {name: each._asdict() for name, each in self.capacities.items()},
            "scaled": [] if autoscaling is None else [asdict(change) for change in autoscaling.changes],
            "gpu_hours": hours,
            "dollars": hourly_price(self.request.plan.gpu_types, hours),
        }

    def _attainment(self) -> dict[str, float]:
        """Returns the shares of admitted requests that meet each target, as gateways count them.

        Failed requests miss the targets, except for the first output if they failed after it.
        """
        settings, found, shares = self.request.settings, self.measurements, {}
        for name, target in (("ttft", settings.ttft), ("tbt", settings.tbt), ("e2e", settings.e2e)):
            if target is None:
                continue
            met, total = 0.0, float(found.failed) if name != "tbt" else 0.0
            if name == "ttft":
                met += sum(seconds <= target for seconds in found.failed_firsts)
            for of_type in found.latencies.values():
                columns: LatencyColumns = of_type[name]
                met += (met_share(columns, target) or 0.0) * len(columns.seconds)
                total += len(columns.seconds)
            if total:
                shares[name] = met / total
        return shares

    def _paths(self) -> list[dict[str, Any]]:
        """Returns the requests on each path, over cells of one size together."""
        counts: dict[tuple[str, str, int], int] = {}
        for way, count in self.measurements.ways.items():
            key = way.request_type, way.cell.partition("-")[0], way.path
            counts[key] = counts.get(key, 0) + count
        return [
            {
                "type": kind,
                "cell_gpus": int(gpus),
                "path": [step.option for step in self.request.plan.types[kind].paths[path].steps],
                "requests": count,
                "rate": count / self.measurements.end,
            }
            for (kind, gpus, path), count in sorted(counts.items())
        ]

    def _executors(self) -> dict[str, dict[str, Any]]:
        """Returns the replicas of each executor in all cells, and their use."""
        found: dict[str, dict[str, Any]] = {}
        seconds: dict[str, float] = {}
        for cell in self.simulation.cells.cells.values():
            for option, group in cell.groups.items():
                entry = found.setdefault(
                    option, {"model": self.models[option], "replicas": 0, "utilization": 0.0, "preemptions": 0}
                )
                for replica in group.replicas.values():
                    entry["replicas"] += 1
                    entry["utilization"] += replica.busy_seconds
                    entry["preemptions"] += replica.preemptions
                    seconds[option] = seconds.get(option, 0.0) + replica.seconds(cell, self.measurements.end)
        for option, entry in found.items():
            entry["utilization"] = entry["utilization"] / seconds[option] if seconds[option] else 0.0
        return dict(sorted(found.items()))


def simulate_plan(
    request: SimulationRequest, on_progress: Callable[[float, int], object] = lambda seconds, requests: None
) -> SimulationResult:
    """Simulates a plan. Raises `InvalidInputError` if the inputs do not fit together.

    Args:
        on_progress: gets the simulated seconds and the number of requests that have arrived.
    """
    plan = request.plan
    profile = None if request.profile is None else ModelProfile.read(request.profile)
    models = executor_models(plan, profile)
    routing = _routing(request)
    capacities = _capacities(request, models, routing)
    measurements = SimulationMeasurements()
    settings = replace(
        request.settings,
        autoscaled={name: each.requests for name, each in capacities.items()},
        startup_times=startup_times(plan, profile),
    )
    simulation = ServingSimulation(plan, models, routing, settings, measurements)
    measurements.events = simulation.events
    load = _CountedLoad(_load(request, simulation))
    simulation.run(load, on_progress)
    if not load.count:
        raise InvalidInputError("--workload", "has no requests: give at least one")
    return SimulationResult(request, capacities, describe_models(models), simulation, measurements, load.count)


def replica_capacities(request: SimulationRequest) -> dict[str, StageCapacity]:
    """Returns the load that one replica takes, by autoscaled option, without a simulation of the plan.

    Raises `InvalidInputError`.
    """
    profile = None if request.profile is None else ModelProfile.read(request.profile)
    return _capacities(request, executor_models(request.plan, profile), _routing(request))


def _routing(request: SimulationRequest) -> RoutingPolicy:
    try:
        return routing_policy(request.routing)
    except UnknownPolicyError as error:
        raise InvalidInputError("--routing", str(error)) from error


def _load(request: SimulationRequest, simulation: ServingSimulation) -> Iterable[SimulatedRequest]:
    return read_load(
        request.plan,
        request.workload,
        simulation.find_type,
        rate=request.rate,
        count=request.count,
        seed=request.seed,
    )


def _capacities(
    request: SimulationRequest, models: Mapping[str, ExecutorModel], routing: RoutingPolicy
) -> dict[str, StageCapacity]:
    """Returns the given capacities of autoscaled options, and those that follow from the TTFT target."""
    settings = request.settings
    given = {name: StageCapacity(rate) for name, rate in settings.autoscaled.items() if rate is not None}
    missing = settings.autoscaled.keys() - given.keys()
    if not missing:
        return given
    settings.check_names(request.plan)
    assert settings.ttft is not None
    idle = ServingSimulation(request.plan, models, routing, ServingSettings(), SimulationMeasurements())
    sample = islice(_load(request, idle), SAMPLE_REQUESTS)
    return given | stage_capacities(idle, models, sample, sorted(missing), settings.ttft)


class _CountedLoad:
    """Counts the requests that are read."""

    def __init__(self, requests: Iterable[Any]) -> None:
        self._requests = requests
        self.count = 0

    def __iter__(self) -> Any:
        for request in self._requests:
            self.count += 1
            yield request


def _summary(columns: LatencyColumns) -> dict[str, Any] | None:
    """Returns the statistics of latencies, each with its interval of 95 %."""
    summary = summarize(columns)
    if summary is None:
        return None
    statistics = {"mean": summary.mean} | {f"p{name}": value for name, value in summary.percentiles.items()}
    return {"requests": summary.requests} | {
        name: {"value": each.value, "low": each.low, "high": each.high} for name, each in statistics.items()
    }
