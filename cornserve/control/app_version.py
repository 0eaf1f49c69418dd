"""One generation of an app and the executor groups that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from cornserve.app.executor_names import check_autoscaled_cell, check_executor_names
from cornserve.app.graph import AppGraph
from cornserve.app.plan import AppPlan
from cornserve.app.plan_resolution import resolve_plan
from cornserve.app.record import GroupStatus, Route
from cornserve.app.route_plan import RoutePlan
from cornserve.app.spec import AppSpec
from cornserve.app_host.description import AppDescription
from cornserve.control.executor_groups import app_group, cell_groups, merge_groups
from cornserve.control.launcher.base import AppOwner, ExecutorGroup, GroupKey, Launcher
from cornserve.control.plan_capacity import can_replace, find_conflict, find_shortage
from cornserve.control.store.base import AppRecord
from cornserve.control.task_manager import TaskManager
from cornserve.task.errors import DefinitionError
from cornserve.task.spec import ExecutorSpec
from cornserve_policies.registry import UnknownPolicyError, routing_policy

Managers = Mapping[GroupKey, TaskManager]


@dataclass(frozen=True)
class AppVersion:
    """The executors that one generation of an app needs."""

    owner: AppOwner
    generation: int
    spec: AppSpec
    shares: list[float]
    executor_specs: dict[str, ExecutorSpec]
    graph: AppGraph | None = None
    """The executor graph, if the app was loaded."""
    plan: RoutePlan | None = None
    """The routing of the spec's plan, without executor groups."""

    @classmethod
    def from_route(cls, name: str, route: Route) -> Self:
        """Restores the served version without an import of the app, which could fail and break a working deployment."""
        owner = AppOwner(name, route.app_uid)
        return cls(owner, route.generation, route.spec, route.shares, route.specs, plan=route.plan)

    @classmethod
    def from_description(cls, record: AppRecord, description: AppDescription) -> Self:
        """Returns the newest version of the record.

        Raises `DefinitionError` if its plan is not one of this app, or if it names an unknown policy or executor.
        """
        owner, graph, executors = AppOwner(record.name, record.uid), description.graph, description.executor_specs
        _check_names(record.spec, executors)
        resolved = None if record.spec.plan is None else resolve_plan(record.spec.plan, graph)
        if resolved is not None:
            check_autoscaled_cell(record.spec, executors, resolved)
        return cls(owner, record.generation, record.spec, description.shares, executors, graph, resolved)

    def with_record(self, record: AppRecord) -> Self | None:
        """Returns the same version for a later generation with different numbers of replicas, policies or plan.

        Returns None if the app must be loaded for the plan, or if the generation is not valid.
        """
        plan = self.plan
        try:
            _check_names(record.spec, self.executor_specs)
            if record.spec.plan is None:
                plan = None
            elif record.spec.plan != self.spec.plan:
                if self.graph is None:
                    return None
                plan = resolve_plan(record.spec.plan, self.graph)
            if plan is not None:
                check_autoscaled_cell(record.spec, self.executor_specs, plan)
        except DefinitionError:
            return None
        return replace(self, generation=record.generation, spec=record.spec, plan=plan)

    def reduced_to(self, newer: AppVersion) -> Self | None:
        """Returns this version with only those cells that a newer one has as well, with the replicas of the plan.

        None without such cells, or if the executors of the newer one are others, for example after a restart.
        """
        plan = self.spec.plan
        if plan is None or self.plan is None or newer.spec.plan is None:
            return None
        counts = _common_counts(plan, newer.spec.plan)
        if not counts:
            return None
        reduced = plan.with_counts(counts, plan.target)
        names = {name for name, _ in reduced.running_cells}
        routing = self.plan.model_copy(update={"cells": [cell for cell in self.plan.cells if cell.name in names]})
        spec = self.spec.model_copy(update={"plan": reduced, "executor_replicas": {}})
        version = replace(self, spec=spec, plan=routing)
        kept = {group.key for group in version.groups}
        return version if kept <= {group.key for group in newer.groups} else None

    @cached_property
    def code(self) -> str:
        """The hash of all that the executors and the gateways load."""
        return self.spec.code

    def is_routed_as(self, code: str, plan: AppPlan | None) -> bool:
        """Whether the version has this code and this plan. Only numbers of replicas may differ."""
        return self.code == code and self.spec.plan == plan

    @cached_property
    def groups(self) -> list[ExecutorGroup]:
        return [*self._groups.values(), *(group for cell in self._cell_groups for group in cell.values())]

    @cached_property
    def _groups(self) -> dict[str, ExecutorGroup]:
        """The groups by executor key, without a plan."""
        if self.plan is not None:
            return {}
        return {key: app_group(spec, self.spec, self.owner) for key, spec in self.executor_specs.items()}

    @cached_property
    def _cell_groups(self) -> list[dict[str, ExecutorGroup]]:
        """The groups of each cell of the plan, by executor key."""
        return [] if self.spec.plan is None else self._groups_of(self.spec.plan)

    def _groups_of(self, plan: AppPlan) -> list[dict[str, ExecutorGroup]]:
        """Returns the groups of each cell of a plan with the same options, by executor key."""
        assert self.plan is not None
        spec = self.spec
        if plan is not spec.plan:  # Other cells have the replicas of the plan.
            spec = spec.model_copy(update={"executor_replicas": {}})
        return cell_groups(plan, self.plan.executors, spec, self.executor_specs, self.owner)

    @cached_property
    def route(self) -> Route:
        return Route(
            app_uid=self.owner.uid,
            generation=self.generation,
            # Only the controller reads these fields, in the record.
            spec=self.spec.model_copy(update={"planning": None, "measured": None, "held_until": None}),
            shares=self.shares,
            specs=self.executor_specs,
            groups={key: group.key for key, group in self._groups.items()},
            plan=self._route_plan,
        )

    @property
    def _route_plan(self) -> RoutePlan | None:
        if self.plan is None:
            return None
        cells = [
            cell.model_copy(update={"groups": {key: group.key for key, group in groups.items()}})
            for cell, groups in zip(self.plan.cells, self._cell_groups, strict=True)
        ]
        return self.plan.model_copy(update={"cells": cells})

    @cached_property
    def _planned(self) -> dict[GroupKey, tuple[str, str]]:
        """The cell and the options of each group of the plan."""
        if self.plan is None:
            return {}
        options = self.plan.options
        return {
            group.key: (cell.name, options[key])
            for cell, groups in zip(self.plan.cells, self._cell_groups, strict=True)
            for key, group in groups.items()
        }

    def group_statuses(self, managers: Managers) -> Iterator[GroupStatus]:
        """Yields the status of the groups that have a manager, with their cells."""
        for manager in self.select_managers(managers):
            planned = self._planned.get(manager.key)
            if planned is None:
                yield manager.status
            else:
                yield manager.status.model_copy(update={"cell": planned[0], "option": planned[1]})

    def select_managers(self, managers: Managers) -> list[TaskManager]:
        """Returns the managers of the groups that have one. A version that is being replaced may not have them."""
        return [managers[group.key] for group in self.groups if group.key in managers]

    def find_shortage(self, launcher: Launcher) -> str | None:
        """Returns why the plan can never run, for users, or None."""
        if self.plan is None:
            return None
        return find_shortage(self.groups, {key: option for key, (_, option) in self._planned.items()}, launcher)

    def find_obstacle(self, plan: AppPlan, kept: AppPlan, launcher: Launcher) -> str | None:
        """Returns why another plan with the same options cannot replace this one, for users. None if it can.

        Without a common cell, which serves until the new cells are ready, both must fit at the same time.

        Args:
            kept: the cells of this plan that run until then.
        """
        try:
            if self.graph is not None:
                resolve_plan(plan, self.graph)
        except DefinitionError as error:
            return str(error)
        groups = [group for cell in self._groups_of(plan) for group in cell.values()]
        if not can_replace(groups, self.groups, launcher):
            return f"its {plan.gpus} GPUs or slots are not free"
        if _common_counts(kept, plan):
            return None
        running = (group for cell in self._groups_of(kept) for group in cell.values())
        return find_conflict(merge_groups([*groups, *running]).values(), launcher)

    def missing(self, managers: Managers, *, needs_all: bool) -> list[TaskManager]:
        """Returns the managers of the groups without a ready replica, or with `needs_all` without one of them."""
        return [
            managers[group.key]
            for group in self.groups
            if group.key in managers
            and len(managers[group.key].endpoints) < (group.replicas if needs_all else min(group.replicas, 1))
        ]


def _common_counts(plan: AppPlan, other: AppPlan) -> dict[int, int]:
    """Returns the numbers of the running cells that two plans have in common, by GPUs of a cell."""
    others = {cell.gpus: cell for cell in other.cells}
    counts = {
        cell.gpus: min(cell.count, others[cell.gpus].count)
        for cell in plan.cells
        if cell.gpus in others and cell.replicas == others[cell.gpus].replicas
    }
    return {gpus: count for gpus, count in counts.items() if count}


def _check_names(spec: AppSpec, executors: Mapping[str, ExecutorSpec]) -> None:
    check_executor_names(spec, executors)
    try:
        routing_policy(spec.policies.routing)
    except UnknownPolicyError as error:
        raise DefinitionError(f"policies.routing: {error}") from error
