"""The desired number of replicas of each executor group, over all apps that share it."""

from __future__ import annotations

from collections.abc import Iterable

from cornserve.control.launcher.base import ExecutorGroup, GroupKey


def merge_groups(groups: Iterable[ExecutorGroup]) -> dict[GroupKey, ExecutorGroup]:
    """Merges groups with the same key: the largest number of replicas wins."""
    merged: dict[GroupKey, ExecutorGroup] = {}
    for group in groups:
        if group.key not in merged or merged[group.key].replicas < group.replicas:
            merged[group.key] = group
    return merged
