"""One app in the controller's eyes: what it needs to run, and the status that follows from what runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from cornserve.app.load import load
from cornserve.app.record import AppSpec, AppStatus, GroupStatus, Phase, Route
from cornserve.app.source import unload_app
from cornserve.app.threads import run_in_daemon_thread
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Launcher
from cornserve.control.store.base import AppRecord
from cornserve.control.task_manager import TaskManager
from cornserve.task.errors import DefinitionError
from cornserve.task.spec import ExecutorSpec

LOG_LINES = 20
MESSAGE_CHARACTERS = 4000
"""Errors may quote anything, and a status has to stay small."""

Managers = Mapping[GroupKey, TaskManager]


@dataclass(frozen=True, slots=True)
class Version:
    """What one generation of an app needs."""

    generation: int
    spec: AppSpec
    shares: list[float]
    specs: dict[str, ExecutorSpec]

    @classmethod
    def of(cls, route: Route) -> Self:
        """Of what is served nothing is imported again: that could fail by now, and end what works."""
        return cls(route.generation, route.spec, route.shares, route.specs)

    @classmethod
    def load(cls, record: AppRecord) -> Self:
        """Imports the app: slow, and not for an event loop.

        Raises `DefinitionError` if the app cannot be loaded, and whatever else the app's code raises.
        """
        module = f"cornserve_plan_{record.uid}_{record.generation}"
        try:
            app = load(record.name, record.spec, module)
            return cls(record.generation, record.spec, list(app.shares), app.executor_specs())
        finally:
            unload_app(module)

    def at(self, record: AppRecord) -> Self:
        """The same version as a later generation, which has other replicas."""
        return replace(self, generation=record.generation, spec=record.spec)

    @property
    def groups(self) -> list[ExecutorGroup]:
        return [ExecutorGroup(spec, self.spec.replicas) for spec in self.specs.values()]

    def managers(self, managers: Managers) -> list[TaskManager]:
        return [managers[group.key] for group in self.groups]


class Deployment:
    """Holds the newest generation and, until that serves, the one that is served meanwhile."""

    def __init__(self, record: AppRecord) -> None:
        self.record = record
        self._newest: Version | None = None
        self._served: Version | None = None
        self._refusal: str | None = None
        self._trouble = ""

    def take(self, record: AppRecord) -> None:
        """A newer state of the record."""
        if record.generation != self.record.generation:
            self._refusal, self._trouble = None, ""
        self.record = record
        self._take_route(record.status.route)
        if self._newest is None or self._newest.generation != record.generation:
            self._newest = self._known_version_of(record)

    def _take_route(self, route: Route | None) -> None:
        if route is None:
            self._served = None
        elif self._newest is not None and self._newest.spec.code == route.spec.code:
            self._served = self._newest
        elif self._served is None or self._served.spec.code != route.spec.code:
            self._served = Version.of(route)

    def _known_version_of(self, record: AppRecord) -> Version | None:
        """What has been loaded of the same code: only the replicas are other ones."""
        for version in (self._newest, self._served):
            if version is not None and version.spec.code == record.spec.code:
                newest = version.at(record)
                if version is self._served:
                    self._served = newest
                return newest
        return None

    @property
    def is_to_be_loaded(self) -> bool:
        return self._newest is None and self._refusal is None and not self._has_failed

    async def load(self) -> None:
        """Imports the newest generation, however long that takes. Raises, if trying again may help."""
        code = self.record.spec.code
        newest, refusal, trouble = None, None, ""
        try:
            newest = await run_in_daemon_thread(Version.load, self.record)
        except DefinitionError as error:
            refusal = str(error)
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
            raise
        finally:
            if code == self.record.spec.code:
                self._newest = newest and newest.at(self.record)
                self._refusal, self._trouble = refusal, trouble

    @property
    def _has_failed(self) -> bool:
        status = self.record.status
        return status.phase is Phase.FAILED and status.generation == self.record.generation

    def groups(self) -> dict[GroupKey, ExecutorGroup]:
        """What has to run for this app."""
        versions = (self._served, None if self._has_failed else self._newest)
        return largest(group for version in versions if version is not None for group in version.groups)

    @property
    def left_alone(self) -> list[GroupKey]:
        """What an earlier controller has started, and is neither wanted nor unwanted before the app is loaded."""
        return [GroupKey(group.key) for group in self._groups_so_far] if self.is_to_be_loaded else []

    @property
    def _groups_so_far(self) -> list[GroupStatus]:
        status = self.record.status
        return status.groups if status.generation == self.record.generation else []

    def take_over(self, managers: Managers) -> None:
        """From when enough of the newest generation is ready, it is the one that is served."""
        if not self._has_failed and self._newest is not None and not self._missing(self._newest, managers):
            self._served = self._newest

    async def status(self, managers: Managers, launcher: Launcher) -> AppStatus:
        """The status that follows from what is observed. Never goes back from a failure: a new generation does."""
        if self._has_failed:
            observed = {"route": self._route(managers), "groups": self._groups(None, managers)}
            return self.record.status.model_copy(update=observed)
        if self._refusal is not None:
            return self._failed(managers, self._refusal, [])
        if self._newest is None:
            message = f"cannot be loaded, and is tried again: {self._trouble}" if self._trouble else "is being loaded"
            return self._going(Phase.STARTING, message, managers)
        missing = self._missing(self._newest, managers)
        if not missing:
            return self._going(Phase.SERVING, "", managers)
        mine = [] if self._served is self._newest else self._newest.managers(managers)
        failing = next((manager.failed for manager in mine if manager.failed), None)
        if failing is not None:
            lines = await launcher.logs(failing.id, LOG_LINES)
            return self._failed(managers, f"{failing.group} did not start: {failing.message}", lines)
        waits = ", ".join(f"{it.key} ({it.waits_for})" if it.waits_for else it.key for it in missing)
        return self._going(Phase.STARTING, f"waiting for {waits}", managers)

    def _missing(self, newest: Version, managers: Managers) -> list[TaskManager]:
        """Whose replicas the newest generation waits for."""
        needed = newest.spec.replicas if self._other_serves(managers) else 1
        return [manager for manager in newest.managers(managers) if len(manager.endpoints) < needed]

    def _other_serves(self, managers: Managers) -> bool:
        """Whether another version does: then the newest takes over with all its replicas, not to break down at once."""
        served = self._served
        if served is None or served is self._newest:
            return False
        return all(manager.endpoints for manager in served.managers(managers))

    def _going(self, phase: Phase, message: str, managers: Managers) -> AppStatus:
        return AppStatus(
            phase=phase,
            generation=self.record.generation,
            message=message[:MESSAGE_CHARACTERS],
            groups=self._groups_so_far if self._newest is None else self._groups(self._newest, managers),
            route=self._route(managers),
        )

    def _failed(self, managers: Managers, message: str, logs: list[str]) -> AppStatus:
        return AppStatus(
            phase=Phase.FAILED,
            generation=self.record.generation,
            message=message[:MESSAGE_CHARACTERS],
            logs=logs,
            groups=self._groups(None, managers),
            route=self._route(managers),
        )

    def _groups(self, newest: Version | None, managers: Managers) -> list[GroupStatus]:
        """Of the newest generation, and of the one that is served meanwhile."""
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
            specs=served.specs,
            endpoints={manager.key: manager.endpoints for manager in served.managers(managers)},
        )


def largest(groups: Iterable[ExecutorGroup]) -> dict[GroupKey, ExecutorGroup]:
    """Of those who share a group, the one that wants most replicas decides."""
    largest: dict[GroupKey, ExecutorGroup] = {}
    for group in groups:
        if group.key not in largest or largest[group.key].replicas < group.replicas:
            largest[group.key] = group
    return largest
