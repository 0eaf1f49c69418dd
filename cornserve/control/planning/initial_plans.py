"""Makes the plans of apps whose specs have only the inputs of a plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from pydantic import ValidationError

from cornserve.app.graph import AppGraph, no_graph_reason
from cornserve.app.load import with_all_paths
from cornserve.app.plan import AppPlan
from cornserve.app.record import FailureReason, PlanningStep
from cornserve.app.spec import AppSpec, SpecChanges
from cornserve.app.step_limits import with_step_limits
from cornserve.app_host.describe import DescribeApp
from cornserve.app_host.description import AppDescription
from cornserve.control.app_version import AppVersion
from cornserve.control.deployment_failure import Failure, loading_failure
from cornserve.control.launcher.base import Launcher
from cornserve.control.planning.job import PlanningJob
from cornserve.control.planning.planner_process import Planner
from cornserve.control.preparation import Preparation, PreparationJobs, retried
from cornserve.control.spec_change import change_spec
from cornserve.control.store.base import (
    AppRecord,
    FieldConflictError,
    RecordRejectedError,
    RecordTooLargeError,
    Store,
)
from cornserve.daemon_thread import run_in_daemon_thread
from cornserve.task.errors import DefinitionError
from cornserve.validation_errors import describe_all

log = logging.getLogger(__name__)


class _LoadedApp(NamedTuple):
    """An app with all paths of a model's family, without a plan."""

    spec: AppSpec
    description: AppDescription
    graph: AppGraph


@dataclass(slots=True)
class _PlannedApp:
    record: AppRecord
    state: Preparation


class InitialPlans:
    """Makes the plan of the newest version of each app, and stores it in the spec, as a new generation.

    Args:
        store: the store of the specs as users have written them.
        describe: describes an app; its graph is the planner's model.
        launcher: has the slots that a plan may need.
        on_change: called when the state of an app has changed.
        on_error: called after a failed attempt.
    """

    def __init__(
        self,
        store: Store,
        describe: DescribeApp,
        planner: Planner,
        launcher: Launcher,
        on_change: Callable[[], None],
        on_error: Callable[[], None],
    ) -> None:
        self._store = store
        self._describe = describe
        self._planner = planner
        self._launcher = launcher
        self._on_change = on_change
        self._on_error = on_error
        self._apps: dict[str, _PlannedApp] = {}
        self._jobs = PreparationJobs[tuple[str, int, str]](self._plan)

    def update(self, wanted: Mapping[str, AppRecord], failed: Collection[str] = ()) -> None:
        """Starts the planning of the apps that need a plan, and ends that of all others.

        Args:
            failed: see `PreparationJobs.update`.
        """
        versions = {name: (record.uid, record.generation, record.spec.code) for name, record in wanted.items()}
        for name in self._jobs.update(versions, failed):
            self._apps[name] = _PlannedApp(wanted[name], Preparation("a plan is being made", PlanningStep.PLANNING))
        for name in self._apps.keys() - wanted.keys():
            del self._apps[name]

    def state(self, app: str) -> Preparation | None:
        """Returns the state of an app that needs a plan."""
        found = self._apps.get(app)
        return None if found is None else found.state

    async def close(self) -> None:
        """Ends all planning."""
        await self._jobs.close()

    async def _plan(self, name: str) -> None:
        app = self._apps[name]

        def delay(error: str, pause: float) -> None:
            self._on_error()
            app.state.message = f"the plan will be made again: {error}; the next attempt starts after {pause:g} s"
            self._on_change()

        app.state.failure = await retried(f"app {name}: planning", partial(self._make, app.record), delay)
        self._on_change()

    async def _make(self, record: AppRecord) -> Failure | None:
        """Makes and stores the plan of an app. Returns the failure if no plan can be made that can run.

        Raises an error if another attempt may succeed.
        """
        name, planning = record.name, record.spec.planning_inputs
        assert planning is not None
        loaded = await self._load(record)
        if isinstance(loaded, Failure):
            return loaded
        spec, description, graph = loaded
        job = PlanningJob(app=name, graph=graph, inputs=planning, targets=record.spec.policies.targets)
        result = await self._planner(job)
        if result.plan is None:
            return _planning_failure(result.error)
        plan = _on_measured_type(result.plan, record.spec).model_copy(
            update={"planned_from": record.spec.planning_digest}
        )
        changes: SpecChanges = {"model": spec.model, "executor_replicas": {}}
        limited, plan = with_step_limits(spec, plan, result.step_limits)
        if limited.executors != spec.executors:
            loaded = await self._load(replace(record, spec=limited))
            if isinstance(loaded, Failure):
                return loaded
            spec, description, _ = loaded
            changes["executors"] = spec.executors
        changes["plan"] = plan
        failure = self._check(replace(record, spec=spec.model_copy(update={"plan": plan})), description)
        if failure is not None:
            return failure
        try:
            await change_spec(self._store, record, **changes)
        except (FieldConflictError, RecordRejectedError, RecordTooLargeError) as error:
            return _planning_failure(str(error))
        except ValidationError as error:  # The settings of the app exclude such a plan.
            return _planning_failure(describe_all(error.errors()))
        log.info("app %s: the plan serves %.4g requests/s on %d GPUs", name, plan.rate, plan.gpus)
        return None

    async def find_refusal(self, record: AppRecord) -> str:
        """Returns why the options of an app without a profile cannot be measured for a plan, or an empty text.

        Raises an error if another attempt may succeed.
        """
        assert record.spec.planning is not None
        loaded = await self._load(record)
        if isinstance(loaded, Failure):
            return loaded.message
        spec = record.spec
        job = PlanningJob(
            app=record.name, graph=loaded.graph, inputs=record.spec.planning, targets=spec.policies.targets
        )
        return (await self._planner(job)).error

    async def _load(self, record: AppRecord) -> _LoadedApp | Failure:
        try:
            spec = await run_in_daemon_thread(_with_paths, record.spec)
            description = await self._describe(record.name, spec)
            AppVersion.from_description(replace(record, spec=spec), description)
        except DefinitionError as error:
            return loading_failure(record.spec, error)
        if description.graph is None:
            return _planning_failure(no_graph_reason(record.name))
        return _LoadedApp(spec, description, description.graph)

    def _check(self, planned: AppRecord, description: AppDescription) -> Failure | None:
        """Returns why the plan of a record can never run, before it is stored. None if it can."""
        try:
            shortage = AppVersion.from_description(planned, description).find_shortage(self._launcher)
        except DefinitionError as error:
            return _planning_failure(str(error))
        return None if shortage is None else Failure(FailureReason.INSUFFICIENT_CAPACITY, shortage)


def _on_measured_type(plan: AppPlan, spec: AppSpec) -> AppPlan:
    """Returns the plan with the type of slots on which the controller has had the options measured.

    A given profile is of any type, also in an app that was measured before.
    """
    assert spec.planning is not None
    if spec.measured is None or spec.planning.profile is not None:
        return plan
    return plan.with_gpu_types(dict.fromkeys(plan.options, spec.measured.gpu_type))


def _planning_failure(message: str) -> Failure:
    return Failure(FailureReason.PLANNING_FAILED, message)


def _with_paths(spec: AppSpec) -> AppSpec:
    """Returns the spec without a plan, with all paths of a model's family unless shares are given. Reads its files."""
    planned = spec.model_copy(update={"plan": None, "planning": None, "measured": None})
    has_shares = spec.model is not None and spec.model.shares is not None
    return planned if has_shares else with_all_paths(planned)
