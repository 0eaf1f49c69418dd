"""Cells: groups whose pods share one topology domain, such as a node.

Required pod affinity keeps the pods of a cell together, but the scheduler places one pod after the other: the first may
land where the others do not fit. Such a cell releases its nodes, and the next attempt avoids them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from typing import Any

from cornserve.backoff import backoff_seconds
from cornserve.control.launcher.base import GroupKey
from cornserve.control.launcher.kubernetes.pod_observation import is_unschedulable
from cornserve.kubernetes.pods import find_condition
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL

LONGEST_PAUSES = 10
"""The longest pause before another attempt, as a multiple of the first."""


class CellPlacement:
    """The placement of one cell.

    Args:
        patience_seconds: the time for which a member may fit nowhere before the cell releases its nodes, and the first
            pause before the next attempt.
        avoided: the nodes that the current attempt avoids.
    """

    def __init__(self, patience_seconds: float, avoided: Iterable[str] = ()) -> None:
        self._patience_seconds = patience_seconds
        self.avoided = frozenset(avoided)
        self.members: set[GroupKey] = set()
        self.obstacle = ""
        """Why the last attempt has failed, in the words of the scheduler."""
        self._failures = 0
        self._stuck_since: float | None = None
        self._retry_at: float | None = None

    @property
    def is_released(self) -> bool:
        """Whether the members have no pods until the next attempt."""
        return self._retry_at is not None

    @property
    def deadline(self) -> float | None:
        """The time of the next change without a change of pods, or None."""
        if self._retry_at is not None:
            return self._retry_at
        return None if self._stuck_since is None else self._stuck_since + self._patience_seconds

    def update(self, pods: Collection[JsonObject], now: float) -> bool:
        """Observes the pods of the cell. Returns whether its members must be applied again."""
        if self._retry_at is not None:
            return self._retry(self._retry_at, pods, now)
        obstacle = self._find_obstacle(pods)
        if not obstacle:
            self._stuck_since = None
            if self.members and not self._without_ready_pods(pods):
                self._failures = 0
            return False
        if self._stuck_since is None:
            self._stuck_since = now
        if now - self._stuck_since < self._patience_seconds:
            return False
        occupied = {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
        if not occupied and not self.avoided:
            self._stuck_since = now  # It holds nothing that others could use: its pods wait.
            return False
        self._release(occupied, obstacle, now)
        return True

    def _release(self, occupied: set[str], obstacle: str, now: float) -> None:
        self.avoided = self.avoided | occupied if occupied else frozenset()
        self.obstacle = obstacle
        self._failures += 1
        first = self._patience_seconds
        pause = backoff_seconds(self._failures, first=first, longest=LONGEST_PAUSES * first)
        # The jitter prevents that two cells block each other again and again.
        self._retry_at = now + pause * random.uniform(0.5, 1.5)

    def _retry(self, at: float, pods: Collection[JsonObject], now: float) -> bool:
        if now < at or pods:
            return False
        self._retry_at = self._stuck_since = None
        return True

    def _without_ready_pods(self, pods: Iterable[JsonObject]) -> set[GroupKey]:
        ready = {_group(pod) for pod in pods if find_condition(pod, "Ready").get("status") == "True"}
        return self.members - ready

    def _find_obstacle(self, pods: Collection[JsonObject]) -> str:
        """Returns the reason why a member has no pod that is ready or could become ready, or an empty text.

        Cells that serve are never released, for example when they are scaled up and their node is full.
        """
        waiting = self._without_ready_pods(pods)
        stuck = next((pod for pod in pods if _group(pod) in waiting and is_unschedulable(pod)), None)
        if stuck is None:
            return ""
        return str(find_condition(stuck, "PodScheduled").get("message", "")) or "no node fits"


def _group(pod: JsonObject) -> GroupKey:
    return GroupKey(pod["metadata"]["labels"][EXECUTOR_LABEL])


def avoid_nodes(template: JsonObject, nodes: Collection[str]) -> JsonObject:
    """Returns the pod template with a node affinity that excludes the nodes."""
    if not nodes:
        return template
    spec = template["spec"]
    affinity: JsonObject = spec.get("affinity") or {}
    node_affinity: JsonObject = affinity.get("nodeAffinity") or {}
    required: JsonObject = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    # The API server accepts only one name for each requirement.
    names: list[Any] = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(nodes)]
    terms = [
        {**term, "matchFields": [*term.get("matchFields", []), *names]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    node_affinity = {**node_affinity, "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**template, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": node_affinity}}}
