"""A simulation of a model with an encoder, a language model and a vocoder on many GPUs."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.profiles.profile import ModelProfile
from cornserve_planner.simulation.executor_model import executor_models
from cornserve_planner.simulation.measurements import SimulationMeasurements
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_policies.registry import routing_policy

CELL_GPUS = 64

LOAD = 0.8
"""The part of the plan's rate at which requests arrive."""

MODEL = """
format: cornserve-planner/model
version: 1
name: three-stages
components: {encoder: {}, llm: {after: [encoder]}, vocoder: {after: [llm]}}
options:
  encoder: {components: [encoder], gpu: A100-80GB}
  llm: {components: [llm], gpu: A100-80GB}
  vocoder: {components: [vocoder], gpu: A100-80GB}
paths: [[encoder, llm, vocoder]]
"""

WORKLOAD = """
format: cornserve-planner/workload
version: 1
types: {speech: {components: [encoder, llm, vocoder], share: 1}}
"""

RATE = "throughput: [{{rate: {{value: {}, unit: requests/s, tag: measured, source: a benchmark}}}}]"

PROFILE = f"""
format: cornserve-planner/profile
version: 1
model: three-stages
options:
  - {{option: encoder, gpu: A100-80GB, {RATE.format(12)}}}
  - option: llm
    gpu: A100-80GB
    {RATE.format(5)}
    step:
      fixed: 0.004
      weights: 0.0075
      per_token: 5.0e-5
      per_sequence: 1.0e-5
      per_context_token: 3.0e-8
      cache_tokens: 800000
      tag: predicted
      source: a benchmark
  - {{option: vocoder, gpu: A100-80GB, {RATE.format(20)}}}
"""


@dataclass(frozen=True, slots=True)
class LargeSimulation:
    """A measured simulation.

    Args:
        gpus: GPUs of its replicas. `replicas`: their number.
        simulated_seconds: seconds until the last request has ended. `cpu_seconds`: CPU time of the simulation.
        peak_mib: peak memory of the process.
    """

    requests: int
    gpus: int
    replicas: int
    simulated_seconds: float
    cpu_seconds: float
    wall_seconds: float
    peak_mib: float
    p99_seconds: float

    @property
    def microseconds(self) -> float:
        """CPU time per request."""
        return 1e6 * self.cpu_seconds / self.requests


def large_simulation(requests: int, gpus: int, routing: str) -> LargeSimulation:
    """Simulates `requests` requests on about `gpus` GPUs, which are a multiple of `CELL_GPUS`."""
    plan, profile = _inputs(max(1, round(gpus / CELL_GPUS)))
    measurements = SimulationMeasurements()
    simulation = ServingSimulation(
        plan, executor_models(plan, profile), routing_policy(routing), ServingSettings(), measurements
    )
    measurements.events = simulation.events
    cpu, wall = time.process_time(), time.perf_counter()
    simulation.run(_requests(requests, LOAD * plan.rate))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    ordered = sorted(measurements.latencies["speech"]["e2e"].seconds)
    return LargeSimulation(
        requests=measurements.completed,
        gpus=plan.gpus,
        replicas=sum(len(group.replicas) for cell in simulation.cells.cells.values() for group in cell.groups.values()),
        simulated_seconds=measurements.end,
        cpu_seconds=cpu,
        wall_seconds=wall,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        p99_seconds=ordered[int(0.99 * len(ordered))],
    )


def _inputs(cells: int) -> tuple[PlanFile, ModelProfile]:
    with TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.yaml" for name in ("model", "workload", "profile")}
        for name, text in (("model", MODEL), ("workload", WORKLOAD), ("profile", PROFILE)):
            files[name].write_text(text)
        plan = make_plan(
            PlanRequest(
                str(files["model"]),
                gpus=CELL_GPUS,
                largest_cell=CELL_GPUS,
                workload=files["workload"],
                profile=files["profile"],
            )
        ).file
        return plan.with_counts({CELL_GPUS: cells}, None), ModelProfile.read(files["profile"])


def _requests(count: int, rate: float) -> Iterator[SimulatedRequest]:
    """Yields requests with log-normal sizes, of about 300 tokens of text, 1,200 of media, and 150 of output."""
    rng, now = random.Random(1), 0.0
    for number in range(count):
        now += rng.expovariate(rate)
        text, media, output = (round(mean * rng.lognormvariate(0.0, 0.8)) for mean in (300, 1200, 150))
        yield SimulatedRequest(str(number), now, "speech", text, media, 1 + output)
