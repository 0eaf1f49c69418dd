"""Finds executor groups with ready pods that no EndpointSlice contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from cornserve.control.launcher.base import GroupKey
from cornserve.kubernetes.endpoint_slices import has_ready_endpoint
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL

PATIENCE_SECONDS = 5.0
"""The time for which ready pods may be in no EndpointSlice: Kubernetes adds them a moment after they are ready, and
after their Service was restored."""


class MissingEndpoints:
    """Compares the groups with ready pods to the EndpointSlices, in which gateways find their endpoints."""

    def __init__(self, slices: Informer, services: Informer) -> None:
        self._slices = slices
        self._services = services
        self._changed = slices.track_changes()
        self._group_of: dict[str, GroupKey] = {}
        """The group of each EndpointSlice with a ready pod."""
        self._counts = Counter[GroupKey]()
        """The number of these EndpointSlices of each group."""
        self._since: dict[GroupKey, float] = {}
        """The groups without an EndpointSlice with a ready pod, and when that was first seen."""
        self.problems: dict[GroupKey, str] = {}
        """Why gateways do not find the ready pods of a group, for users."""

    def update(self, ready: Set[GroupKey], now: float) -> bool:
        """Observes the EndpointSlices. Returns whether `problems` has changed.

        Args:
            ready: the groups with ready pods.
            now: in seconds.
        """
        for name in self._changed:
            self._update_slice(name)
        self._changed.clear()
        missing = (key for key in ready if not self._counts[key])
        self._since = {key: self._since.get(key, now) for key in missing}
        before = self.problems
        late = (key for key, since in self._since.items() if now - since >= PATIENCE_SECONDS)
        self.problems = {key: self._describe(key) for key in late}
        return self.problems != before

    @property
    def deadline(self) -> float | None:
        """The time of the next `update` that can find a problem without a change, or None."""
        times = (since + PATIENCE_SECONDS for key, since in self._since.items() if key not in self.problems)
        return min(times, default=None)

    def _update_slice(self, name: str) -> None:
        if (key := self._group_of.pop(name, None)) is not None:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
        found = self._slices.objects.get(name)
        if found is not None and has_ready_endpoint(found):
            self._group_of[name] = key = GroupKey(found["metadata"]["labels"][EXECUTOR_LABEL])
            self._counts[key] += 1

    def _describe(self, key: GroupKey) -> str:
        if key not in self._services.objects:
            return f"gateways cannot find it, because its Service {key} does not exist"
        return f"gateways cannot find it, because no EndpointSlice of its Service {key} contains a ready pod"
