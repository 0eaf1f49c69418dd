"""The headroom and the latency that a plan leaves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import PlanInputs
from cornserve_planner.inputs.request_targets import GoodputTargets
from cornserve_planner.model.problem import PlanningProblem

UTILIZATION = 0.8
"""The fraction of its replicas' time that a plan uses by default. Queues grow without bound at 1."""


@dataclass(frozen=True, slots=True)
class ServiceTargets:
    """
    Args:
        utilization: maximum fraction of the replicas' time that the plan uses. With latency targets, replay decides.
        robust: plan for the longest times of the profile's confidence intervals.
    """

    utilization: float = UTILIZATION
    latency: GoodputTargets = field(default_factory=GoodputTargets)
    robust: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.utilization <= 1:
            raise InvalidInputError("--utilization", f"must be greater than 0 and at most 1, not {self.utilization:g}")


def with_targets(inputs: PlanInputs, targets: ServiceTargets) -> PlanInputs:
    """Returns the inputs with the times, batch sizes and limits of utilization that the targets need."""
    latency = targets.latency
    batch = {
        name: option.best(_memory(inputs.problem, name), latency.least("tbt"), latency.step_seconds)
        for name, option in inputs.batches.items()
    }
    slowdown = {name: option.slowdown(batch[name]) for name, option in inputs.batches.items()}
    found = replace(inputs, robust=targets.robust, batch=batch, slowdown=slowdown)
    memory = {
        name: needed for name, option in inputs.batches.items() if (needed := option.memory(batch[name])) is not None
    }
    utilization = 1.0 if latency else targets.utilization
    problem = PlanningProblem.from_graph(
        inputs.graph,
        inputs.workload.shares,
        lambda kind, step: found.time(kind, step).seconds,
        inputs.problem.gpus.values(),
        {**inputs.problem.memory, **memory},
        dict.fromkeys(inputs.problem.option, utilization),
    )
    return replace(found, problem=problem)


def _memory(problem: PlanningProblem, option: str) -> float | None:
    gpu = problem.gpus.get(problem.option[option].gpu or "")
    return None if gpu is None else gpu.memory
