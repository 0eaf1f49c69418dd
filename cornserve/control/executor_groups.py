"""Executor groups of an app: its executors with the app's settings, over all apps that share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from json import dumps
from math import ceil

from cornserve.app.plan import AppPlan
from cornserve.app.plan_resolution import by_executor
from cornserve.app.settings import ALL_EXECUTORS, GpuTypeName, ModelStorage
from cornserve.app.spec import AppSpec
from cornserve.control.launcher.base import AppOwner, ExecutorCell, ExecutorGroup, GroupKey, PodSettings
from cornserve.task.spec import ExecutorSpec
from cornserve_plan.plan import PlanCell

LOAD_TOLERANCE = 1e-6
"""Loads are computed from rounded numbers: a load of 2.0000001 needs 2 replicas."""


def app_group(spec: ExecutorSpec, app: AppSpec, owner: AppOwner) -> ExecutorGroup:
    """Returns the group that runs an executor of an app, with the app's settings for this executor.

    The spec has the app's engine options already: loading the app applies them.
    """
    return ExecutorGroup(
        _restarted(spec, app), app.replicas_of(spec.executor), pod=_pod(spec, app, None), owners=(owner,)
    )


def cell_groups(
    plan: AppPlan, executors: Mapping[str, str], app: AppSpec, specs: Mapping[str, ExecutorSpec], owner: AppOwner
) -> list[dict[str, ExecutorGroup]]:
    """Returns the groups of each running cell of a plan, by the key of the executor.

    Args:
        executors: the key of the executor of each option.
    """
    types = {key: plan.options[option].gpu_type for option, key in executors.items()}
    planned = {name: by_executor(cell.replicas, executors) for name, cell in plan.running_cells}
    replicas = _scaled_cells(planned, specs, app.executor_replicas)
    # An app that adapts may use its cells up to their rates.
    share = plan.target_share if app.policies.adaptation is None else 1.0
    autoscaling = app.policies.autoscaling
    autoscaled = set() if autoscaling is None else {each.name for each in autoscaling.executors}

    def load(key: str, cell: str, planned: Mapping[str, float]) -> float | None:
        """Returns the replicas that the app needs. None for a number by hand, which other apps may use, too."""
        executor = specs[key].executor
        if executor not in app.executor_replicas:
            return planned.get(key)
        return replicas[cell, key] if executor in autoscaled else None

    def groups(name: str, cell: PlanCell) -> dict[str, ExecutorGroup]:
        loads = by_executor({option: load * share for option, load in cell.loads.items()}, executors)
        executor_cell = _executor_cell(name, planned[name], owner)
        return {
            key: ExecutorGroup(
                _restarted(specs[key], app),
                replicas[name, key],
                load=load(key, name, loads),
                pod=_pod(specs[key], app, types[key]),
                cell=executor_cell,
                owners=(owner,),
            )
            for key in planned[name]
        }

    return [groups(name, cell) for name, cell in plan.running_cells]


def _scaled_cells(
    planned: Mapping[str, Mapping[str, int]], specs: Mapping[str, ExecutorSpec], totals: Mapping[str, int]
) -> dict[tuple[str, str], int]:
    """Returns the replicas of each executor in each cell, by the name of the cell and the key of the executor.

    An executor with a total has it in all cells together, in proportion to the plan. Each cell keeps at least one
    replica, and a cell that is not shared, whose replicas are placed together, those of the plan.

    Args:
        planned: the planned replicas, by the same names and keys.
        totals: by the name of the executor.
    """
    counts = {(cell, key): count for cell, replicas in planned.items() for key, count in replicas.items()}
    scaled = dict(counts)
    for executor, total in totals.items():
        places = [(cell, key) for cell, key in counts if specs[key].executor == executor]
        scaled.update({(cell, key): counts[cell, key] if cell else 1 for cell, key in places})
        for _ in range(total - sum(scaled[place] for place in places) if places else 0):
            scaled[max(places, key=lambda place: counts[place] / (scaled[place] + 1))] += 1
    return scaled


def _executor_cell(name: str, replicas: Mapping[str, int], owner: AppOwner) -> ExecutorCell | None:
    """Returns the cell of executors that are not shared. It has another name if its replicas differ."""
    if not name:
        return None
    digest = sha256(dumps([owner.name, replicas], sort_keys=True).encode()).hexdigest()[:8]
    app = "".join(character if character.isalnum() else "-" for character in owner.name)[:30].strip("-")
    return ExecutorCell(name=f"{app}-{name}-{digest}", pods=sum(replicas.values()))


def _restarted(spec: ExecutorSpec, app: AppSpec) -> ExecutorSpec:
    return ExecutorSpec(
        executor=spec.executor,
        config=spec.config,
        gpus=spec.gpus,
        has_tensors=spec.has_tensors,
        restart=app.restart_of(spec.executor),
    )


def _pod(spec: ExecutorSpec, app: AppSpec, planned: GpuTypeName | None) -> PodSettings:
    templates = {override.name: override.pod_template for override in app.executors}
    return PodSettings(
        template=templates.get(spec.executor) or templates.get(ALL_EXECUTORS) or {},
        gpu_type=(planned or app.gpu_type_of(spec.executor)) if spec.gpus else None,
        storage=_storage(spec, app),
    )


def _storage(spec: ExecutorSpec, app: AppSpec) -> ModelStorage | None:
    """Returns the storage of the files of the executor's model: a volume has those of the app's model only."""
    if app.model is None or app.model.storage is None:
        return None
    is_drawer = app.model.drawer is not None and spec.config.get("model_id") == app.model.drawer
    return None if is_drawer and app.model.storage.download is None else app.model.storage


def merge_groups(groups: Iterable[ExecutorGroup]) -> dict[GroupKey, ExecutorGroup]:
    """Merges groups of versions of one app with the same key, which then have the most replicas and the largest load.

    Both versions serve for a while.
    """
    merged: dict[GroupKey, ExecutorGroup] = {}
    for group in groups:
        known = merged.setdefault(group.key, group)
        if known is not group:
            most = max(known, group, key=lambda each: each.replicas)
            load = max(known, group, key=_load).load
            merged[group.key] = replace(most, load=load, owners=_owners((known, group)))
    return merged


def _load(group: ExecutorGroup) -> float:
    """Returns the load of a group. Without a plan, or with a number by hand, it is unknown: all replicas are needed."""
    return group.replicas if group.load is None else group.load


def share_groups(groups: Iterable[ExecutorGroup]) -> dict[GroupKey, ExecutorGroup]:
    """Merges groups of different apps with the same key, which then have all owners and replicas for all apps."""
    sharing: dict[GroupKey, list[ExecutorGroup]] = {}
    for group in groups:
        sharing.setdefault(group.key, []).append(group)
    return {
        key: each[0]
        if len(each) == 1
        else replace(each[0], replicas=shared_replicas(each), load=None, owners=_owners(each))
        for key, each in sharing.items()
    }


def shared_replicas(groups: Iterable[ExecutorGroup]) -> int:
    """Returns the replicas of an executor that several apps share.

    The loads of planned apps are summed: two apps that need 0.4 replicas each share one. Apps whose loads are unknown,
    because they have no plan or a number of replicas by hand, share the largest number that one of them requests. No
    app has fewer replicas than it has alone.
    """
    groups = list(groups)
    unknown = max((group.replicas for group in groups if group.load is None), default=0)
    planned = sum(group.load for group in groups if group.load is not None)
    return max(ceil(unknown + planned - LOAD_TOLERANCE), *(group.replicas for group in groups))


def _owners(groups: Iterable[ExecutorGroup]) -> tuple[AppOwner, ...]:
    owners = {owner for group in groups for owner in group.owners}
    return tuple(sorted(owners, key=lambda owner: (owner.name, owner.uid)))
