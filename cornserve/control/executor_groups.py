"""Executor groups of an app: its executors with the app's settings, over all apps that share them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cornserve.app.record import AppSpec
from cornserve.control.launcher.base import AppOwner, ExecutorGroup, GroupKey, PodSettings
from cornserve.task.spec import ExecutorSpec

ALL_EXECUTORS = "*"


def app_group(spec: ExecutorSpec, app: AppSpec, owner: AppOwner) -> ExecutorGroup:
    """Returns the group that runs an executor of an app, with the app's settings for this executor.

    The spec has the app's engine options already: loading the app applies them.
    """
    templates = {override.name: override.pod_template for override in app.executors}
    template = templates.get(spec.executor) or templates.get(ALL_EXECUTORS) or {}
    restarted = ExecutorSpec(
        executor=spec.executor,
        config=spec.config,
        gpus=spec.gpus,
        has_tensors=spec.has_tensors,
        restart=app.restart,
    )
    return ExecutorGroup(restarted, app.replicas, PodSettings(template=template, storage=app.storage), owners=(owner,))


def merge_groups(groups: Iterable[ExecutorGroup]) -> dict[GroupKey, ExecutorGroup]:
    """Merges groups with the same key, which then have all owners and the largest number of replicas."""
    merged: dict[GroupKey, ExecutorGroup] = {}
    for group in groups:
        known = merged.get(group.key, group)
        merged[group.key] = replace(
            known, replicas=max(known.replicas, group.replicas), owners=_merge_owners(known, group)
        )
    return merged


def _merge_owners(first: ExecutorGroup, second: ExecutorGroup) -> tuple[AppOwner, ...]:
    return tuple(sorted({*first.owners, *second.owners}, key=lambda owner: (owner.name, owner.uid)))
