"""The simulation of replicas with a set service time, for comparison with real ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.simulation.executor_model import executor_models
from cornserve_planner.simulation.request_run import RequestRun, StageInvocation
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_policies.admission import Refusal
from cornserve_policies.registry import routing_policy

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


class SimulatedLoad(NamedTuple):
    """The response times of requests, and the time at which the last one has ended."""

    responses: list[float]
    end: float


class _ResponseTimes:
    """Collects the times from the arrivals of requests to their ends."""

    def __init__(self) -> None:
        self.simulation: ServingSimulation
        self.seconds: list[float] = []

    def request_refused(self, request: SimulatedRequest, refusal: Refusal | None) -> None:
        raise RuntimeError("a simulated request was refused")

    def request_failed(self, run: RequestRun) -> None:
        raise RuntimeError("a simulated request has failed")

    def stage_ended(self, invocation: StageInvocation) -> None: ...

    def request_ended(self, run: RequestRun) -> None:
        self.seconds.append(self.simulation.events.now - run.request.arrival)


def simulated_responses(policy: str, replicas: int, service_seconds: float, arrivals: Sequence[float]) -> SimulatedLoad:
    """Simulates requests that arrive at these times.

    Args:
        policy: the name of a routing policy.
        service_seconds: the time of a replica for a request. It serves one at a time.
    """
    with TemporaryDirectory() as folder:
        files = {"model.yaml": MODEL, "workload.yaml": WORKLOAD, "profile.yaml": PROFILE.format(1 / service_seconds)}
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        plan = make_plan(
            PlanRequest(
                str(Path(folder) / "model.yaml"),
                gpus=replicas,
                workload=Path(folder) / "workload.yaml",
                profile=Path(folder) / "profile.yaml",
            )
        ).file
    times = _ResponseTimes()
    times.simulation = ServingSimulation(
        plan, executor_models(plan, None), routing_policy(policy), ServingSettings(), times
    )
    times.simulation.run(
        SimulatedRequest(f"request {number}", arrival, "text", None, None, None)
        for number, arrival in enumerate(arrivals)
    )
    return SimulatedLoad(times.seconds, times.simulation.events.now)
