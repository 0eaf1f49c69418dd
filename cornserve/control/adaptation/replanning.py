"""Makes another plan for an app whose mix of request types has shifted, in the background [C §4.3]."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Final

from cornserve.app.adaptation_status import PlanProposal
from cornserve.app.arrivals import UNPLANNED_TYPE
from cornserve.app.plan import AppPlan
from cornserve.app.planning import PlanningInputs
from cornserve.app.step_limits import unset_limits
from cornserve.app_host.describe import DescribeApp
from cornserve.control.adaptation.cell_adaptation import MIX_SHIFT_END, CellAdaptation
from cornserve.control.adaptation.decision_log import log_mix, log_plan
from cornserve.control.adaptation.observed_frequency import TypeCounts, with_observed_frequency
from cornserve.control.background_tasks import BackgroundTasks
from cornserve.control.planning.job import PlanningJob, PlanningResult
from cornserve.control.planning.planner_process import Planner
from cornserve.control.store.base import AppRecord
from cornserve_policies.adaptation import PlanCapacity, find_mix_shift, is_better

log = logging.getLogger(__name__)

SAME_MIX: Final = 0.05
"""No other plan is made for the same running plan and a mix of which less than this share of requests differs from the
last one."""

LEAST_SHARE: Final = 0.005
"""Each type keeps this share in a plan: requests of a type that has become rare are still served."""


@dataclass
class _AppReplanning:
    """The plans of one app.

    Args:
        since: the time in seconds at which the shift was found.
        mix: the mix of the last plan. `attempted_at`: the time at which it was started.
    """

    since: float
    mix: Mapping[str, float] | None = None
    attempted_at: float = float("-inf")
    task: asyncio.Task[PlanningResult | None] | None = None
    distance: float = 0.0
    running: AppPlan | None = field(default=None, repr=False)
    """The plan that ran when the task started."""


class Replanning:
    """Makes plans for shifted mixes. An app has one planner at a time.

    Args:
        describe: describes an app; its graph is the planner's model.
    """

    def __init__(self, describe: DescribeApp, planner: Planner) -> None:
        self._describe = describe
        self._planner = planner
        self._apps: dict[str, _AppReplanning] = {}
        self._tasks = BackgroundTasks()

    def forget(self, name: str) -> None:
        """Ends the planner of an app."""
        state = self._apps.pop(name, None)
        if state is not None and state.task is not None:
            state.task.cancel()

    async def close(self) -> None:
        """Ends all planners."""
        self._apps.clear()
        await self._tasks.close()

    def step(self, app: CellAdaptation, now: float) -> PlanProposal | None:
        """Returns a better plan for the observed mix, if one has been made. Starts a planner if the mix needs one."""
        name, inputs = app.record.name, app.record.spec.planning_inputs
        if inputs is None or inputs.profile is None or app.status.mix_shift is None:
            self.forget(name)
            return None
        state = self._apps.setdefault(name, _AppReplanning(since=now))
        if state.task is None:
            self._start(state, app, inputs, now)
            return None
        if not state.task.done():
            return None
        task, state.task = state.task, None
        if state.running != app.plan:
            state.mix = None  # The comparison is with a plan that does not run any more.
            return None
        result = task.result()
        if result is None:
            state.mix = None
            return None
        return _proposal(app, state, result)

    def _start(self, state: _AppReplanning, app: CellAdaptation, inputs: PlanningInputs, now: float) -> None:
        limits = app.settings.limits
        window_seconds = now - state.since
        if window_seconds < limits.shrink_window or now < max(app.since, state.attempted_at) + limits.dwell_seconds:
            return
        window = app.arrivals.window(window_seconds, now)
        planned = {name: kind.share for name, kind in app.plan.types.items()}
        observed = None if window is None else find_mix_shift(planned, window, tolerance=MIX_SHIFT_END)
        if window is not None and app.record.spec.policies.log_decisions:
            log_mix(app.record.name, planned, window, MIX_SHIFT_END, observed)
        if observed is None:
            return
        mix = _mix(app.plan, observed.shares)
        if state.mix is not None and state.running == app.plan and _distance(mix, state.mix) <= SAME_MIX:
            return
        state.mix, state.attempted_at, state.distance, state.running = mix, now, observed.distance, app.plan
        counts = _counts(app, window_seconds, now)
        state.task = self._tasks.start(self._plan(app.record, app.plan, inputs.with_mix(app.plan, mix), counts))

    async def _plan(
        self, record: AppRecord, running: AppPlan, inputs: PlanningInputs, observed: Mapping[str, TypeCounts]
    ) -> PlanningResult | None:
        """Returns None if the app could not be loaded, or if the planner's process has failed."""
        try:
            description = await self._describe(record.name, record.spec)
            if description.graph is None:
                return PlanningResult(error="the app has no executor graph")
            inputs = with_observed_frequency(inputs, description.graph, observed)
            targets = record.spec.policies.targets
            job = PlanningJob(app=record.name, graph=description.graph, inputs=inputs, targets=targets, running=running)
            return await self._planner(job)
        except Exception as error:
            log.warning("app %s: no plan could be made for the shifted mix: %s", record.name, error)
            return None


def _proposal(app: CellAdaptation, state: _AppReplanning, result: PlanningResult) -> PlanProposal | None:
    """Returns the proposal to run another plan, if it is better, with the obstacle to it."""
    name, plan, rate_now = app.record.name, result.plan, result.running_rate or 0.0
    if plan is None:
        log.warning("app %s: no plan could be made for the shifted mix: %s", name, result.error)
    elif plan.options != app.plan.options:
        log.warning("app %s: the running plan has other options than the app: deploy it with another plan", name)
    elif unset := unset_limits(plan, result.step_limits):
        text = ", ".join(f"{key}={each} of {option}" for option, known in unset.items() for key, each in known.items())
        log.warning("app %s: the plan for the shifted mix needs limits of steps: deploy the app with %s", name, text)
    elif not _is_better(app, plan, rate_now):
        log.info("app %s: no plan serves the shifted mix notably better than the running one", name)
    else:
        reason = (
            f"{state.distance:.0%} of the requests have another type than planned, and the running cells serve "
            f"{rate_now:.4g} requests/s of this mix"
        )
        plan = plan.model_copy(update={"planned_from": app.plan.planned_from})
        obstacle = app.find_obstacle(plan, app.plan) or ""
        return PlanProposal.of(app.record.generation, app.plan, plan, rate_now, reason, obstacle)
    return None


def _is_better(app: CellAdaptation, plan: AppPlan, rate_now: float) -> bool:
    """Returns whether a plan has a notable benefit. `rate_now`: the requests per second of its mix that are served."""
    found, running = PlanCapacity(plan.rate, plan.gpus), PlanCapacity(rate_now, app.plan.gpus)
    better = is_better(found, running, app.plan.target)
    if app.record.spec.policies.log_decisions:
        log_plan(app.record.name, found, running, app.plan.target, is_better=better)
    return better


def _counts(app: CellAdaptation, seconds: float, now: float) -> dict[str, TypeCounts]:
    """Returns the requests and the invocations of each type with requests. Those of no type have the default type."""
    arrived = app.arrivals.window(seconds, now)
    if arrived is None:
        return {}
    found: dict[str, TypeCounts] = {}
    for name in app.plan.types:
        names = {name, UNPLANNED_TYPE} if name == app.plan.default_type else {name}
        requests = sum(arrived.counts.get(each, 0) for each in names)
        invocations = app.invocations[name].window(seconds, now)
        if requests and invocations is not None:
            found[name] = TypeCounts(requests, invocations.counts)
    return found


def _mix(plan: AppPlan, observed: Mapping[str, float]) -> dict[str, float]:
    """Returns the shares of the plan's types. Requests of no type are routed by the default type."""
    shares = {name: observed.get(name, 0.0) for name in plan.types}
    shares[plan.default_type] += observed.get(UNPLANNED_TYPE, 0.0)
    least = {name: max(share, LEAST_SHARE) for name, share in shares.items()}
    total = fsum(least.values())
    return {name: share / total for name, share in least.items()}


def _distance(mix: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Returns the share of requests that have another type: half of the sum of all differences."""
    return fsum(abs(mix.get(name, 0.0) - other.get(name, 0.0)) for name in mix.keys() | other.keys()) / 2
