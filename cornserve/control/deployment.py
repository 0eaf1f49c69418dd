"""The deployment of one app: the executor groups it needs, and the status that follows from what runs."""

from __future__ import annotations

import asyncio
from math import inf

from cornserve.app.plan import AppPlan
from cornserve.app.record import (
    MAX_EXITS,
    AppStatus,
    FailureReason,
    GroupStatus,
    Phase,
    ReplicaExit,
    Route,
    RouteStatus,
)
from cornserve.app.spec import AppSpec
from cornserve.app_host.describe import DescribeApp
from cornserve.app_host.errors import AppLoadError, ForkServerError
from cornserve.control.adaptation.served_plan import with_served_plan
from cornserve.control.app_version import AppVersion, Managers
from cornserve.control.deployment_failure import Failure, find_failure, loading_failure
from cornserve.control.executor_groups import merge_groups
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Launcher
from cornserve.control.plan_capacity import find_conflict, have_room
from cornserve.control.preparation import Preparation
from cornserve.control.rollout_progress import RolloutProgress
from cornserve.control.store.base import AppRecord, RouteRecord
from cornserve.control.task_manager import TaskManager
from cornserve.exception_text import exception_text
from cornserve.task.errors import DefinitionError

MAX_MESSAGE_CHARACTERS = 4000
"""Error messages may contain any text, and a status must stay small."""

LOADING = "is being loaded"
LOADING_AGAIN = "cannot be loaded and will be loaded again"


class Deployment:
    """Holds the newest version of an app and, until that one serves, the version that serves now."""

    def __init__(self, record: AppRecord) -> None:
        self.record = record
        self.version = record.generation, record.spec.code
        """The generation and the code. A changed ConfigMap changes the code of a generation."""
        self._route: tuple[Route, str] | None = None
        """The route in the store, with the hash of its code."""
        self.written: tuple[int, AppStatus] | None = None
        """The status that was written last, with the version of the record that has it. A store may not keep it
        completely, so that the record differs from it."""
        self._suspension = RouteStatus()
        self._loaded: AppVersion | None = None
        """The version that has been loaded since the last round. The next round makes it the newest and applies its
        groups: without groups, it would look ready."""
        self._newest: AppVersion | None = None
        self._served: AppVersion | None = None
        self._loading = Preparation(LOADING)
        self.planning: Preparation | None = None
        """The measurements, or the planning, of a version that needs a plan."""
        self._checked: AppVersion | None = None
        """The version whose plan was compared with the existing slots."""
        self._shortage: str | None = None
        """The reason why the newest version can never run."""
        self._progress = RolloutProgress()
        self._adapted: tuple[AppRecord, AppSpec | None, AppRecord] | None = None
        """The newest record, the spec that serves, and the record by which the app adapts to its load."""

    def apply_records(self, record: AppRecord, route: RouteRecord | None) -> None:
        """Updates the deployment to newer versions of the app's record and of its route."""
        code = self.version[1] if record.spec is self.record.spec else record.spec.code
        if (record.generation, code) != self.version:
            self.version = record.generation, code
            self._loading, self.planning = Preparation(LOADING), None
            self._progress = RolloutProgress()
        self.record = record
        has_route = route is not None and route.spec.app_uid == record.uid
        self._apply_route(route.spec if route is not None and has_route else None)
        self._suspension = route.status if route is not None and has_route else RouteStatus()
        if self._newest is None or (self._newest.generation, self._newest.code) != self.version:
            self._newest = self._loaded_version(record)
            self._loaded = None

    def _apply_route(self, route: Route | None) -> None:
        if route is None:
            return  # It has not been written yet, or someone has deleted it. The served version does not change.
        if self._route is None or self._route[0] is not route:
            self._route = route, route.spec.code
        code, plan = self._route[1], route.spec.plan
        if self._newest is not None and self._newest.is_routed_as(code, plan):
            self._served = self._newest
        elif self._served is None or not self._served.is_routed_as(code, plan):
            self._served = AppVersion.from_route(self.record.name, route)
            self._checked = None  # The route was not written: the served version has all of its cells again.

    def _loaded_version(self, record: AppRecord) -> AppVersion | None:
        """Returns the version with the record's code if it is loaded. Only replicas and the plan may differ."""
        if record.spec.needs_plan:
            return None
        for version in (self._loaded, self._newest, self._served):
            if version is not None and version.code == self.version[1]:
                newest = version.with_record(record)
                if newest is None:
                    continue
                if version is self._served and newest.spec.plan == version.spec.plan:
                    self._served = newest
                return newest
        return None

    @property
    def needs_loading(self) -> bool:
        is_undecided = self._newest is None and self._loading.failure is None and not self.has_failed
        return is_undecided and not self.record.spec.needs_plan

    async def load(self, describe: DescribeApp) -> None:
        """Loads the newest generation, for the next `apply_records`. Raises an error if another attempt may succeed."""
        record, (_, code) = self.record, self.version
        loaded, loading = None, Preparation(LOADING)
        try:
            loaded = AppVersion.from_description(record, await describe(record.name, record.spec))
        except DefinitionError as error:
            loading.failure = loading_failure(record.spec, error)
        except (AppLoadError, ForkServerError) as error:
            loading.message = f"{LOADING_AGAIN}: {error}"
            raise
        except Exception as error:
            loading.message = f"{LOADING_AGAIN}: {exception_text(error)}"
            raise
        finally:
            if code == self.version[1]:
                self._loaded, self._loading = loaded, loading

    @property
    def has_failed(self) -> bool:
        """Whether the newest version has failed. Only another version starts."""
        status = self.record.status
        return status.phase is Phase.FAILED and (status.generation, status.failed_code) == self.version

    def make_room(self, launcher: Launcher) -> None:
        """Compares a new version with the existing slots, before its groups are applied.

        Refuses a version that can never run, or never while the served one runs. Without space for its new cells, it
        ends the cells that the version does not have at once.
        """
        newest, served = self._newest, self._served
        if newest is None or newest is self._checked:
            return
        self._checked, self._shortage = newest, None
        if newest is served:
            return
        self._shortage = newest.find_shortage(launcher)
        if served is None or self._shortage is not None:
            return
        both = merge_groups([*newest.groups, *served.groups]).values()
        if have_room(both, launcher):
            return
        reduced = served.reduced_to(newest)
        if reduced is not None:
            self._served = reduced
        elif newest.plan is not None and newest.spec.rollout.type != "Recreate":
            self._shortage = find_conflict(both, launcher)

    @property
    def _is_refused(self) -> bool:
        return self.has_failed or self._shortage is not None

    def find_obstacle(self, plan: AppPlan, kept: AppPlan, launcher: Launcher) -> str | None:
        """Returns why another plan with the same options cannot replace the one that adapts, for users, or None.

        Args:
            kept: the cells of the replaced plan that run until the new ones serve.
        """
        failed, replaced = self._adapting
        if failed is not None and plan.gpus >= failed.gpus:
            return f"a plan for {failed.gpus} GPUs or slots has failed"
        if replaced is None or replaced.plan is None:
            return "the app is being loaded"
        return replaced.find_obstacle(plan, kept, launcher)

    def most_gpus(self, launcher: Launcher) -> float:
        """Returns the GPUs or slots that a plan may have at most which replaces the one that adapts.

        It is infinity if the launcher cannot know what may become available.
        """
        failed, _ = self._adapting
        plan, slots = self.adapted_record.spec.plan, launcher.slots(None)
        largest = inf if failed is None else failed.gpus - 1
        return largest if plan is None or slots is None else min(largest, slots.free + plan.gpus)

    @property
    def _adapting(self) -> tuple[AppPlan | None, AppVersion | None]:
        """The plan that has failed, if any, and the version that adapts to the load."""
        if self.adapted_record is self.record:
            return None, self._newest
        return self.record.spec.plan, self._served

    @property
    def adapted_record(self) -> AppRecord:
        """The record by which the app adapts to its load."""
        served = None if self._served is None else self._served.spec
        if self._adapted is None or self._adapted[0] is not self.record or self._adapted[1] is not served:
            self._adapted = self.record, served, with_served_plan(self.record, served)
        return self._adapted[2]

    def groups(self) -> dict[GroupKey, ExecutorGroup]:
        """Returns the executor groups that must run for this app."""
        newest = None if self._is_refused else self._newest
        recreates = newest is not None and newest.spec.rollout.type == "Recreate"
        versions = (None if recreates else self._served, newest)
        return merge_groups(group for version in versions if version is not None for group in version.groups)

    @property
    def retained_groups(self) -> list[GroupKey]:
        """Groups that an earlier controller has started, which are kept until the app is loaded."""
        return [GroupKey(group.key) for group in self._recorded_groups] if self.needs_loading else []

    @property
    def _recorded_groups(self) -> list[GroupStatus]:
        status = self.record.status
        return status.groups if status.generation == self.record.generation else []

    def promote_if_ready(self, managers: Managers) -> None:
        """Makes the newest version the served one if enough of its replicas are ready."""
        if not self._is_refused and self._newest is not None and not self._missing(self._newest, managers):
            self._served = self._newest

    @property
    def route(self) -> Route | None:
        """The route of the version that serves."""
        return None if self._served is None else self._served.route

    @property
    def deadline(self) -> float | None:
        """The time by the event loop's clock at which the roll-out fails without progress. None without a roll-out."""
        if self._newest is None or self._newest is self._served or self.has_failed:
            return None
        return self._progress.last_change + self._newest.spec.rollout.progress_deadline_seconds

    def exits(self, launcher: Launcher) -> list[ReplicaExit]:
        """Returns the last exits of the app's executors: those in its record, and those that the launcher knows."""
        versions = (each for each in (self._served, self._newest) if each is not None)
        exits = {
            exit.replica: exit
            for key in {group.key for each in versions for group in each.groups}
            for exit in launcher.exits(key)
        }
        exits |= {exit.replica: exit for exit in self.record.status.exits}
        return sorted(exits.values(), key=lambda exit: (exit.time, exit.replica))[-MAX_EXITS:]

    async def status(self, managers: Managers, launcher: Launcher) -> AppStatus:
        """Returns the status that follows from the observed replicas.

        A failure is final for its generation: only a new generation leaves the phase `failed`.
        """
        if self.has_failed:
            return self._with_common_fields(self.record.status, self._groups(None, managers), managers)
        if self.planning is not None or self._newest is None or self._loading.failure is not None:
            return self._preparation_status(self.planning or self._loading, managers)
        if self._shortage is not None:
            return self._failed_status(managers, Failure(FailureReason.INSUFFICIENT_CAPACITY, self._shortage))
        missing = self._missing(self._newest, managers)
        if not missing:
            return self._status(Phase.SERVING if self._newest.spec.replicas else Phase.PARKED, "", managers)
        waits = ", ".join(
            f"{manager.key} ({manager.waiting_reason})" if manager.waiting_reason else manager.key
            for manager in missing
        )
        failure = None if self._served is self._newest else await find_failure(self._newest, managers, launcher)
        if failure is None and self._is_late(managers):
            seconds = self._newest.spec.rollout.progress_deadline_seconds
            failure = Failure(FailureReason.DEADLINE_EXCEEDED, f"no progress in {seconds} s, still waiting for {waits}")
        if failure is not None:
            return self._failed_status(managers, failure)
        return self._status(Phase.STARTING, f"waiting for {waits}", managers)

    def _is_late(self, managers: Managers) -> bool:
        assert self._newest is not None
        self._progress.observe(sum(len(manager.endpoints) for manager in self._newest.select_managers(managers)))
        return self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline

    def _missing(self, newest: AppVersion, managers: Managers) -> list[TaskManager]:
        """Returns the managers of the groups that need more ready replicas before the newest version can serve."""
        return newest.missing(managers, needs_all=self._older_version_serves(managers))

    def _older_version_serves(self, managers: Managers) -> bool:
        """Whether an older version serves all requests.

        The newest version then waits for all of its replicas, so that the load does not overwhelm the first.
        """
        served = self._served
        if served is None or served is self._newest:
            return False
        serving = served.select_managers(managers)
        return bool(serving) and all(manager.endpoints for manager in serving)

    def _status(self, phase: Phase, message: str, managers: Managers) -> AppStatus:
        groups = self._groups(self._newest, managers)
        if self._newest is None:
            known = {group.key for group in groups}
            groups += [group for group in self._recorded_groups if group.key not in known]
        status = AppStatus(phase=phase, generation=self.record.generation, message=message[:MAX_MESSAGE_CHARACTERS])
        return self._with_common_fields(status, groups, managers)

    def _preparation_status(self, preparation: Preparation, managers: Managers) -> AppStatus:
        if preparation.failure is not None:
            return self._failed_status(managers, preparation.failure)
        status = self._status(Phase.STARTING, preparation.message, managers)
        return status if preparation.step is None else status.model_copy(update={"step": preparation.step})

    def _failed_status(self, managers: Managers, failure: Failure) -> AppStatus:
        status = AppStatus(
            phase=Phase.FAILED,
            generation=self.record.generation,
            reason=failure.reason,
            failed_code=self.version[1],
            message=failure.message[:MAX_MESSAGE_CHARACTERS],
            logs=failure.logs,
        )
        return self._with_common_fields(status, self._groups(None, managers), managers)

    def _with_common_fields(self, status: AppStatus, groups: list[GroupStatus], managers: Managers) -> AppStatus:
        """Returns the status with the fields that every phase has."""
        serving = [] if self._served is None else self._served.select_managers(managers)
        is_suspended = self._suspension.suspended_code == self.version[1]
        fields = {
            "groups": groups,
            "cells": None if self.record.spec.plan is None else len(self.record.spec.plan.running_cells),
            "serving_generation": None if self._served is None else self._served.generation,
            "suspended": self._suspension.suspended if is_suspended else "",
            "unreachable": next((each.unreachable for each in serving if each.unreachable), ""),
        }
        return status.model_copy(update=fields)

    def _groups(self, newest: AppVersion | None, managers: Managers) -> list[GroupStatus]:
        """Returns the status of the groups of the newest and the served version."""
        versions = (self._served, newest)  # The newest version determines the cell of a group.
        found = {group.key: group for each in versions if each is not None for group in each.group_statuses(managers)}
        order = [group.key for each in reversed(versions) if each is not None for group in each.groups]
        return [found[key] for key in dict.fromkeys(order) if key in found]
