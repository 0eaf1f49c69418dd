"""The simulation of replicas with a set service time, for comparison with real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.given_plan import plan_replicas
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.simulation.executor_model import executor_models
from cornserve_planner.simulation.request_run import RequestRun, StageInvocation
from cornserve_planner.simulation.running_cells import ReplicaGroup
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_policies.admission import Refusal
from cornserve_policies.registry import routing_policy

OPTION = "llm"

MODEL = """
format: cornserve-planner/model
version: 1
name: stages
components: {llm: {}}
options:
  llm: {components: [llm], gpu: A100-80GB}
paths: [[llm]]
"""

WORKLOAD = """
format: cornserve-planner/workload
version: 1
rate: 1
types: {text: {components: [llm], share: 1}}
"""

PROFILE = """
format: cornserve-planner/profile
version: 1
model: stages
options:
  - option: llm
    gpu: A100-80GB
    throughput: [{{rate: {{value: {}, unit: requests/s, tag: measured, source: a benchmark}}}}]
"""

ChangeReplicas = Callable[[ServingSimulation, str, ReplicaGroup], None]
"""Changes the replicas of a group in a cell, of which it gets the name, when it is called."""


class SimulatedLoad(NamedTuple):
    """The response times of requests in the order of arrival, and the time at which the last one has ended.

    Args:
        responses: None for requests that have failed.
    """

    responses: list[float | None]
    end: float


class _ResponseTimes:
    """Collects the times from the arrivals of requests to their ends."""

    def __init__(self) -> None:
        self.simulation: ServingSimulation
        self.seconds: dict[str, float] = {}

    def request_refused(self, request: SimulatedRequest, refusal: Refusal | None) -> None:
        raise RuntimeError("a simulated request was refused")

    def request_failed(self, run: RequestRun) -> None: ...

    def stage_ended(self, invocation: StageInvocation) -> None: ...

    def request_ended(self, run: RequestRun) -> None:
        self.seconds[run.request.id] = self.simulation.events.now - run.request.arrival


def simulated_responses(
    policy: str,
    replicas: int,
    service_seconds: float,
    arrivals: Sequence[float],
    settings: ServingSettings | None = None,
    change: tuple[float, ChangeReplicas] | None = None,
) -> SimulatedLoad:
    """Simulates requests that arrive at these times.

    Args:
        policy: the name of a routing policy.
        service_seconds: the time of a replica for a request. It serves one at a time.
        change: a change of the replicas, and its time.
    """
    plan = plan_of(replicas, service_seconds)
    times = _ResponseTimes()
    times.simulation = simulation = ServingSimulation(
        plan, executor_models(plan, None), routing_policy(policy), settings or ServingSettings(), times
    )
    if change is not None:
        ((name, cell),) = simulation.cells.cells.items()
        when, apply = change
        simulation.events.add(when, lambda group: apply(simulation, name, group), cell.groups[OPTION])
    simulation.run(
        SimulatedRequest(f"request {number}", arrival, "text", None, None, None)
        for number, arrival in enumerate(arrivals)
    )
    return SimulatedLoad(
        [times.seconds.get(f"request {number}") for number in range(len(arrivals))], simulation.events.now
    )


def plan_of(replicas: int, service_seconds: float) -> PlanFile:
    """Returns the plan of replicas that serve one request at a time."""
    with TemporaryDirectory() as folder:
        files = {"model.yaml": MODEL, "workload.yaml": WORKLOAD, "profile.yaml": PROFILE.format(1 / service_seconds)}
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        model, workload, profile = (Path(folder) / name for name in files)
        return plan_replicas(PlanRequest(str(model), workload=workload, profile=profile), {OPTION: replicas})
