"""One generation of an app and the executor groups that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from cornserve.app.record import AppSpec, Route
from cornserve.app_host.description import AppDescription
from cornserve.control.executor_groups import app_group
from cornserve.control.launcher.base import AppOwner, ExecutorGroup, GroupKey
from cornserve.control.store.base import AppRecord
from cornserve.control.task_manager import TaskManager
from cornserve.task.spec import ExecutorSpec

Managers = Mapping[GroupKey, TaskManager]


@dataclass(frozen=True)
class AppVersion:
    """The executors that one generation of an app needs."""

    owner: AppOwner
    generation: int
    spec: AppSpec
    shares: list[float]
    executor_specs: dict[str, ExecutorSpec]

    @classmethod
    def from_route(cls, name: str, route: Route) -> Self:
        """Restores the served version without an import of the app, which could fail and break a working deployment."""
        return cls(AppOwner(name, route.app_uid), route.generation, route.spec, route.shares, route.specs)

    @classmethod
    def from_description(cls, record: AppRecord, description: AppDescription) -> Self:
        """Returns the newest version of the record."""
        owner = AppOwner(record.name, record.uid)
        return cls(owner, record.generation, record.spec, description.shares, description.executor_specs)

    def with_record(self, record: AppRecord) -> Self:
        """Returns the same version for a later generation with a different number of replicas."""
        return replace(self, generation=record.generation, spec=record.spec)

    @property
    def groups(self) -> list[ExecutorGroup]:
        return list(self._groups.values())

    @cached_property
    def _groups(self) -> dict[str, ExecutorGroup]:
        """The groups by executor key."""
        return {key: app_group(spec, self.spec, self.owner) for key, spec in self.executor_specs.items()}

    @cached_property
    def route(self) -> Route:
        return Route(
            app_uid=self.owner.uid,
            generation=self.generation,
            spec=self.spec,
            shares=self.shares,
            specs=self.executor_specs,
            groups={key: group.key for key, group in self._groups.items()},
        )

    def select_managers(self, managers: Managers) -> list[TaskManager]:
        """Returns the managers of the groups that have one. A version that is being replaced may not have them."""
        return [managers[group.key] for group in self.groups if group.key in managers]
