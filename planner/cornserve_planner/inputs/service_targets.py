"""The headroom and the latency that a plan leaves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import PlanInputs
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.solve.budget import Budget
from cornserve_planner.targets.latency_targets import LatencyTargets, meet_targets

UTILIZATION = 0.8
"""The fraction of its replicas' time that a plan uses by default. Queues grow without bound at 1."""


@dataclass(frozen=True, slots=True)
class ServiceTargets:
    """
    Args:
        utilization: maximum fraction of the replicas' time that the plan uses.
        robust: plan for the longest times of the profile's confidence intervals.
    """

    utilization: float = UTILIZATION
    latency: LatencyTargets = field(default_factory=LatencyTargets)
    robust: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.utilization <= 1:
            raise InvalidInputError("--utilization", f"must be greater than 0 and at most 1, not {self.utilization:g}")


def with_targets(inputs: PlanInputs, targets: ServiceTargets, budget: Budget) -> PlanInputs:
    """Returns the inputs with the times, batch sizes and limits of utilization that the targets need.

    Raises `InfeasibleError` if no path of a type meets the latency targets.
    """
    problem = inputs.problem
    robust = replace(inputs, robust=targets.robust)
    if targets.robust:
        problem = PlanningProblem.from_graph(
            inputs.graph,
            inputs.workload.shares,
            lambda kind, step: robust.time(kind, step).seconds,
            problem.gpus.values(),
            problem.memory,
        )
    problem = replace(problem, max_utilization=dict.fromkeys(problem.option, targets.utilization))
    found = meet_targets(problem, inputs.batches, targets.latency, None if budget == Budget() else budget)
    return replace(robust, problem=found.problem, batch=found.batches, slowdown=found.slowdown)
