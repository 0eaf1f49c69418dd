"""One app in the controller's eyes: what it needs to run, and the status that follows from what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from cornserve.app.load import load
from cornserve.app.record import AppSpec, AppStatus, GroupStatus, Phase, Route
from cornserve.app.source import unload_app
from cornserve.control.launcher.base import Group, GroupKey, Launcher
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
        except SystemExit as error:  # Would end the controller.
            raise DefinitionError(f"the app exits when it is loaded: {error}") from error
        finally:
            unload_app(module)

    @property
    def groups(self) -> list[Group]:
        return [Group(spec, self.spec.replicas) for spec in self.specs.values()]

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

    async def take(self, record: AppRecord) -> None:
        """A newer state of the record. Raises what the app's code raises, if trying again may help."""
        self.record = record
        self._take_route(record.status.route)
        if self._newest is None or self._newest.generation != record.generation:
            self._newest, self._refusal = None, None
            if self._served is not None and self._served.generation == record.generation:
                self._newest = self._served
            elif not self._has_failed:
                await self._load()

    def _take_route(self, route: Route | None) -> None:
        if route is None:
            self._served = None
        elif self._newest is not None and self._newest.generation == route.generation:
            self._served = self._newest
        elif self._served is None or self._served.generation != route.generation:
            self._served = Version.of(route)

    async def _load(self) -> None:
        try:
            self._newest = await asyncio.to_thread(Version.load, self.record)
        except DefinitionError as error:
            self._refusal = str(error)
        except Exception as error:
            self._trouble = f"{type(error).__name__}: {error}"
            raise

    @property
    def _has_failed(self) -> bool:
        status = self.record.status
        return status.phase is Phase.FAILED and status.generation == self.record.generation

    def groups(self) -> dict[GroupKey, Group]:
        """What has to run for this app."""
        versions = (self._served, None if self._has_failed else self._newest)
        return largest(group for version in versions if version is not None for group in version.groups)

    async def status(self, managers: Managers, launcher: Launcher) -> AppStatus:
        """The status that follows from what is observed. Never goes back from a failure: a new generation does."""
        if self._has_failed:
            observed = {"route": self._route(managers), "groups": self._groups(None, managers)}
            return self.record.status.model_copy(update=observed)
        if self._refusal is not None:
            return self._failed(managers, self._refusal, [])
        if self._newest is None:
            return self._going(Phase.STARTING, f"cannot be loaded, and is tried again: {self._trouble}", managers)
        needed = self._newest.spec.replicas if self._other_serves(managers) else 1
        mine = self._newest.managers(managers)
        missing = [manager for manager in mine if len(manager.endpoints) < needed]
        if not missing:
            self._served = self._newest
            return self._going(Phase.SERVING, "", managers)
        failing = None if self._served is self._newest else next((it.failed for it in mine if it.failed), None)
        if failing is not None:
            lines = await launcher.logs(failing.id, LOG_LINES)
            return self._failed(managers, f"{failing.group} did not start: {failing.message}", lines)
        waits = ", ".join(f"{it.key} ({it.waits_for})" if it.waits_for else it.key for it in missing)
        return self._going(Phase.STARTING, f"waiting for {waits}", managers)

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
            groups=self._groups(self._newest, managers),
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


def largest(groups: Iterable[Group]) -> dict[GroupKey, Group]:
    """Of those who share a group, the one that wants most replicas decides."""
    largest: dict[GroupKey, Group] = {}
    for group in groups:
        if group.key not in largest or largest[group.key].replicas < group.replicas:
            largest[group.key] = group
    return largest
