"""One app in the controller's eyes: what it needs to run, and the status that follows from what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cornserve.app.load import load
from cornserve.app.record import AppSpec, AppStatus, GroupStatus, Phase, Route
from cornserve.app.source import unload_app
from cornserve.control.launcher.base import Launcher
from cornserve.control.store.base import AppRecord
from cornserve.control.task_manager import TaskManager
from cornserve.task.errors import DefinitionError
from cornserve.task.spec import ExecutorSpec

LOG_LINES = 20


class Version:
    """What one generation of an app needs."""

    def __init__(self, generation: int, spec: AppSpec, shares: list[float], specs: Mapping[str, ExecutorSpec]) -> None:
        self.generation = generation
        self.spec = spec
        self.shares = shares
        self.specs = specs

    @classmethod
    async def load(cls, record: AppRecord, generation: int, spec: AppSpec) -> Version:
        """Raises `DefinitionError` if the app cannot be loaded (any more)."""
        module = f"cornserve_plan_{record.uid}_{generation}"
        try:
            app = await asyncio.to_thread(load, record.name, spec, module)
            return cls(generation, spec, list(app.shares), app.executor_specs())
        finally:
            unload_app(module)


class Deployment:
    """Holds the newest generation and, until that serves, the one that is served meanwhile."""

    def __init__(self, record: AppRecord) -> None:
        self.record = record
        self._newest: Version | None = None
        self._served: Version | None = None
        self._refusal: str | None = None

    async def take(self, record: AppRecord) -> None:
        """A newer state of the record."""
        self.record = record
        if self._newest is None or self._newest.generation != record.generation:
            try:
                self._newest, self._refusal = await Version.load(record, record.generation, record.spec), None
            except DefinitionError as error:
                self._newest, self._refusal = None, str(error)
        route = record.status.route
        if route is None:
            self._served = None
        elif self._newest is not None and route.generation == self._newest.generation:
            self._served = self._newest
        elif self._served is None or self._served.generation != route.generation:
            try:
                self._served = await Version.load(record, route.generation, route.spec)
            except DefinitionError:
                self._served = None

    @property
    def _has_failed(self) -> bool:
        status = self.record.status
        return status.phase is Phase.FAILED and status.generation == self.record.generation

    def groups(self) -> dict[str, tuple[ExecutorSpec, int]]:
        """What has to run for this app: executor specs by key, and how many replicas of each."""
        wanted: dict[str, tuple[ExecutorSpec, int]] = {}
        for version in (self._served, None if self._has_failed else self._newest):
            if version is not None:
                wanted |= {key: (spec, version.spec.replicas) for key, spec in version.specs.items()}
        return wanted

    async def status(self, managers: Mapping[str, TaskManager], launcher: Launcher) -> AppStatus:
        """The status that follows from what is observed. Never goes back from a failure: a new generation does."""
        if self._has_failed:
            observed = {"route": self._route(managers), "groups": self._groups(None, managers)}
            return self.record.status.model_copy(update=observed)
        if self._newest is None:
            return self._failed(managers, self._refusal or "the app cannot be loaded", [])
        mine = [managers[key] for key in self._newest.specs]
        if all(manager.endpoints for manager in mine):
            self._served = self._newest
            return self._going(Phase.SERVING, "", managers)
        failing = None if self._served is self._newest else next((it.failed for it in mine if it.failed), None)
        if failing is not None:
            lines = await launcher.logs(failing.id, LOG_LINES)
            return self._failed(managers, f"{failing.group} did not start: {failing.message}", lines)
        missing = ", ".join(manager.key for manager in mine if not manager.endpoints)
        return self._going(Phase.STARTING, f"waiting for {missing}", managers)

    def _going(self, phase: Phase, message: str, managers: Mapping[str, TaskManager]) -> AppStatus:
        return AppStatus(
            phase=phase,
            generation=self.record.generation,
            message=message,
            groups=self._groups(self._newest, managers),
            route=self._route(managers),
        )

    def _failed(self, managers: Mapping[str, TaskManager], message: str, logs: list[str]) -> AppStatus:
        return AppStatus(
            phase=Phase.FAILED,
            generation=self.record.generation,
            message=message,
            logs=logs,
            groups=self._groups(None, managers),
            route=self._route(managers),
        )

    def _groups(self, newest: Version | None, managers: Mapping[str, TaskManager]) -> list[GroupStatus]:
        """Of the newest generation, and of the one that is served meanwhile."""
        keys = dict.fromkeys(key for version in (newest, self._served) if version for key in version.specs)
        return [managers[key].status for key in keys if key in managers]

    def _route(self, managers: Mapping[str, TaskManager]) -> Route | None:
        served = self._served
        if served is None:
            return None
        endpoints = {key: managers[key].endpoints if key in managers else [] for key in served.specs}
        return Route(generation=served.generation, spec=served.spec, shares=served.shares, endpoints=endpoints)
