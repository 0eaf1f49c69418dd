"""The job of a planner process, and its result."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from cornserve.app.graph import AppGraph
from cornserve.app.plan import AppPlan
from cornserve.app.planning import PlanningInputs
from cornserve.app.settings import LatencyTargetSettings


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanningJob(_Message):
    """The plan to make.

    Args:
        graph: the executor graph of the app.
        inputs: without a profile, it is only checked whether the options can be measured for a plan.
        targets: the latency targets that limit the plan.
        running: the plan that runs, whose rate for the same workload is computed.
    """

    app: str
    graph: AppGraph
    inputs: PlanningInputs
    targets: LatencyTargetSettings | None = None
    running: AppPlan | None = None


class PlanningResult(_Message):
    """The plan, or the error for users. Neither of both if inputs without a profile can be used.

    Args:
        step_limits: the limits of the engines' steps for which the plan is made, by deployment option.
        running_rate: the requests per second of the job's workload that the running plan serves. None if it has other
            options, or if it cannot serve a type.
    """

    plan: AppPlan | None = None
    step_limits: dict[str, dict[str, int]] = {}
    running_rate: float | None = None
    error: str = ""
