"""The deployment of one app: the executor groups it needs, and the status that follows from what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from cornserve.app.record import AppSpec, AppStatus, GroupStatus, Phase, Route
from cornserve.app_host.describe import DescribeApp
from cornserve.app_host.description import AppDescription
from cornserve.app_host.errors import AppLoadError, ForkServerError
from cornserve.control.desired_replicas import merge_groups
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Launcher
from cornserve.control.store.base import AppRecord
from cornserve.control.task_manager import TaskManager
from cornserve.task.errors import DefinitionError
from cornserve.task.spec import ExecutorSpec

LOG_LINES = 20
MAX_MESSAGE_CHARACTERS = 4000
"""Error messages may contain any text, and a status must stay small."""

Managers = Mapping[GroupKey, TaskManager]


@dataclass(frozen=True, slots=True)
class AppVersion:
    """The executors that one generation of an app needs."""

    generation: int
    spec: AppSpec
    shares: list[float]
    executor_specs: dict[str, ExecutorSpec]

    @classmethod
    def from_route(cls, route: Route) -> Self:
        """Restores the served version without an import of the app, which could fail and break a working deployment."""
        return cls(route.generation, route.spec, route.shares, route.specs)

    @classmethod
    def from_description(cls, record: AppRecord, description: AppDescription) -> Self:
        """Returns the newest version of the record."""
        return cls(record.generation, record.spec, description.shares, description.executor_specs)

    def with_record(self, record: AppRecord) -> Self:
        """Returns the same version for a later generation with a different number of replicas."""
        return replace(self, generation=record.generation, spec=record.spec)

    @property
    def groups(self) -> list[ExecutorGroup]:
        return [ExecutorGroup(spec, self.spec.replicas) for spec in self.executor_specs.values()]

    def select_managers(self, managers: Managers) -> list[TaskManager]:
        return [managers[group.key] for group in self.groups]


class Deployment:
    """Holds the newest version of an app and, until that one serves, the version that serves now."""

    def __init__(self, record: AppRecord) -> None:
        self.record = record
        self._newest: AppVersion | None = None
        self._served: AppVersion | None = None
        self._definition_error: str | None = None
        self._load_error = ""
        """The error of the last attempt to load the app. Another attempt may succeed."""

    def apply_record(self, record: AppRecord) -> None:
        """Updates the deployment to a newer version of the record."""
        if record.generation != self.record.generation:
            self._definition_error, self._load_error = None, ""
        self.record = record
        self._apply_route(record.status.route)
        if self._newest is None or self._newest.generation != record.generation:
            self._newest = self._loaded_version(record)

    def _apply_route(self, route: Route | None) -> None:
        if route is None:
            self._served = None
        elif self._newest is not None and self._newest.spec.code == route.spec.code:
            self._served = self._newest
        elif self._served is None or self._served.spec.code != route.spec.code:
            self._served = AppVersion.from_route(route)

    def _loaded_version(self, record: AppRecord) -> AppVersion | None:
        """Returns the version with the record's code if it is loaded. Only the number of replicas may differ."""
        for version in (self._newest, self._served):
            if version is not None and version.spec.code == record.spec.code:
                newest = version.with_record(record)
                if version is self._served:
                    self._served = newest
                return newest
        return None

    @property
    def needs_loading(self) -> bool:
        return self._newest is None and self._definition_error is None and not self._has_failed

    async def load(self, describe: DescribeApp) -> None:
        """Loads the newest generation. Raises an error if another attempt may succeed."""
        record = self.record
        code = record.spec.code
        newest, definition_error, load_error = None, None, ""
        try:
            newest = AppVersion.from_description(record, await describe(record.name, record.spec))
        except DefinitionError as error:
            definition_error = str(error)
        except (AppLoadError, ForkServerError) as error:
            load_error = str(error)
            raise
        except Exception as error:
            load_error = f"{type(error).__name__}: {error}"
            raise
        finally:
            if code == self.record.spec.code:
                self._newest = newest and newest.with_record(self.record)
                self._definition_error, self._load_error = definition_error, load_error

    @property
    def _has_failed(self) -> bool:
        status = self.record.status
        return status.phase is Phase.FAILED and status.generation == self.record.generation

    def groups(self) -> dict[GroupKey, ExecutorGroup]:
        """Returns the executor groups that must run for this app."""
        versions = (self._served, None if self._has_failed else self._newest)
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
        if not self._has_failed and self._newest is not None and not self._missing(self._newest, managers):
            self._served = self._newest

    async def status(self, managers: Managers, launcher: Launcher) -> AppStatus:
        """Returns the status that follows from the observed replicas.

        A failure is final for its generation: only a new generation leaves the phase `failed`.
        """
        if self._has_failed:
            observed = {"route": self._route(managers), "groups": self._groups(None, managers)}
            return self.record.status.model_copy(update=observed)
        if self._definition_error is not None:
            return self._failed_status(managers, self._definition_error, [])
        if self._newest is None:
            error = self._load_error
            message = f"cannot be loaded and will be loaded again: {error}" if error else "is being loaded"
            return self._status(Phase.STARTING, message, managers)
        missing = self._missing(self._newest, managers)
        if not missing:
            return self._status(Phase.SERVING, "", managers)
        own_managers = [] if self._served is self._newest else self._newest.select_managers(managers)
        failed = next((manager.failed_replica for manager in own_managers if manager.failed_replica), None)
        if failed is not None:
            lines = await launcher.logs(failed.id, LOG_LINES)
            return self._failed_status(managers, f"{failed.group} did not start: {failed.message}", lines)
        waits = (
            f"{manager.key} ({manager.waiting_reason})" if manager.waiting_reason else manager.key
            for manager in missing
        )
        return self._status(Phase.STARTING, f"waiting for {', '.join(waits)}", managers)

    def _missing(self, newest: AppVersion, managers: Managers) -> list[TaskManager]:
        """Returns the managers of the groups that need more ready replicas before the newest version can serve."""
        needed = newest.spec.replicas if self._older_version_serves(managers) else 1
        return [manager for manager in newest.select_managers(managers) if len(manager.endpoints) < needed]

    def _older_version_serves(self, managers: Managers) -> bool:
        """Whether an older version serves all requests.

        The newest version then waits for all of its replicas, so that the load does not overwhelm the first.
        """
        served = self._served
        if served is None or served is self._newest:
            return False
        return all(manager.endpoints for manager in served.select_managers(managers))

    def _status(self, phase: Phase, message: str, managers: Managers) -> AppStatus:
        return AppStatus(
            phase=phase,
            generation=self.record.generation,
            message=message[:MAX_MESSAGE_CHARACTERS],
            groups=self._recorded_groups if self._newest is None else self._groups(self._newest, managers),
            route=self._route(managers),
        )

    def _failed_status(self, managers: Managers, message: str, logs: list[str]) -> AppStatus:
        return AppStatus(
            phase=Phase.FAILED,
            generation=self.record.generation,
            message=message[:MAX_MESSAGE_CHARACTERS],
            logs=logs,
            groups=self._groups(None, managers),
            route=self._route(managers),
        )

    def _groups(self, newest: AppVersion | None, managers: Managers) -> list[GroupStatus]:
        """Returns the status of the groups of the newest and the served version."""
        versions = (newest, self._served)
        keys = dict.fromkeys(group.key for version in versions if version is not None for group in version.groups)
        return [managers[key].status for key in keys]

    def _route(self, managers: Managers) -> Route | None:
        served = self._served
        if served is None:
            return None
        return Route(
            generation=served.generation,
            spec=served.spec,
            shares=served.shares,
            specs=served.executor_specs,
            endpoints={manager.key: manager.endpoints for manager in served.select_managers(managers)},
        )
