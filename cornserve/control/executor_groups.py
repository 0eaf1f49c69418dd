"""Executor groups of an app: its executors with the app's settings, over all apps that share them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pydantic import JsonValue

from cornserve.app.record import AppSpec
from cornserve.control.launcher.base import AppOwner, ExecutorGroup, GroupKey, PodSettings
from cornserve.task.spec import ExecutorSpec

ALL_EXECUTORS = "*"


def app_group(spec: ExecutorSpec, app: AppSpec, owner: AppOwner) -> ExecutorGroup:
    """Returns the group that runs an executor of an app, with the app's settings for this executor."""
    options: dict[str, JsonValue] = {}
    template: dict[str, JsonValue] | None = None
    for name in (ALL_EXECUTORS, spec.executor):
        for override in app.executors:
            if override.name == name:
                options |= override.options
                template = override.pod_template or template
    pod = PodSettings(template=template or {}, storage=app.storage)
    return ExecutorGroup(_configured(spec, app, options), app.replicas, pod, owners=(owner,))


def _configured(spec: ExecutorSpec, app: AppSpec, options: dict[str, JsonValue]) -> ExecutorSpec:
    """Returns the spec with the app's engine options."""
    config = dict(spec.config)
    if options:
        own = config.get("options")
        config["options"] = {**own, **options} if isinstance(own, dict) else options
    return ExecutorSpec(
        executor=spec.executor,
        config=config,
        gpus=spec.gpus,
        has_tensors=spec.has_tensors,
        restart=app.restart,
    )


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
