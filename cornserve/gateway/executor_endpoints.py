"""The endpoints of executor groups: those that a source reports, or those in the records of apps."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from cornserve.app.record import GroupStatus, ReplicaState


@dataclass(frozen=True, slots=True)
class GroupEndpoints:
    """The replica ids of an executor group by endpoint."""

    ready: Mapping[str, str]
    last: Mapping[str, str]
    """Executors that were ready and still exist: they drain, or their node does not respond. They serve the gateways
    that are connected to them while no other executor is ready."""
    paused: Set[str] = frozenset()
    """The endpoints in `last` of executors that may become ready again."""


Endpoints = Mapping[str, GroupEndpoints]
"""The endpoints by executor group."""


class EndpointSource(Protocol):
    """Reports the endpoints of executors."""

    def watch(self) -> AsyncIterator[Endpoints]:
        """Yields the endpoints of the groups that exist, now and after each change. Runs until closed."""


class ExecutorEndpoints:
    """The endpoints as they were read last.

    Args:
        source: reports the endpoints. Without it, those in the statuses of apps count.
    """

    def __init__(self, source: EndpointSource | None) -> None:
        self._source = source
        self._reported: Endpoints = {}
        """The endpoints that the source has reported last."""
        self._recorded: defaultdict[str, dict[str, GroupStatus]] = defaultdict(dict)
        """The status of each group by app, the most recent one last."""
        self._groups: dict[str, Set[str]] = {}
        """The groups in the status of each app."""
        self.read = asyncio.Event()
        """Set when the endpoints have been read for the first time. The records need no further read."""
        if source is None:
            self.read.set()

    async def follow(self, on_change: Callable[[Set[str]], None]) -> None:
        """Follows the source, if there is one. Calls `on_change` with the changed groups. Runs until cancelled."""
        if self._source is None:
            return
        known: Endpoints = {}
        async for endpoints in self._source.watch():
            changed = {key for key in known.keys() | endpoints.keys() if known.get(key) != endpoints.get(key)}
            self._reported = known = endpoints
            self.read.set()
            on_change(changed)

    def update_app(self, app: str, groups: Sequence[GroupStatus]) -> Set[str]:
        """Replaces the groups in the status of an app. Returns the old and the new ones."""
        old, new = self._groups.pop(app, set()), {group.key for group in groups}
        if new:
            self._groups[app] = new
        for key in old:
            del self._recorded[key][app]
            if not self._recorded[key]:
                del self._recorded[key]
        for group in groups:
            self._recorded[group.key][app] = group
        return old | new

    def paused(self, key: str) -> Set[str]:
        """Returns the endpoints of a group that are not ready, and may become ready again."""
        reported = self._reported.get(key)
        return frozenset() if reported is None else reported.paused

    def replicas(self, key: str, *, is_left: bool = False) -> Mapping[str, str] | None:
        """Returns the replica ids by endpoint of a group's replicas to use, or None for an unknown group.

        If apps share a group, the most recent status counts.

        Args:
            is_left: whether replicas that are not ready must not be used.
        """
        if self._source is not None:
            if key not in self._reported:
                return None
            reported = self._reported[key]
            return reported.ready or ({} if is_left else reported.last)
        group = self._latest(key)
        if group is None:
            return None
        ready = (replica for replica in group.replicas if replica.state is ReplicaState.READY)
        return {replica.endpoint: replica.id for replica in ready if replica.endpoint is not None}

    def is_waiting(self, key: str) -> bool:
        """Whether none of the group's replicas is ready, and Kubernetes replaces them or starts them again."""
        return key in self._reported and not self._reported[key].ready

    def by_group(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Returns the endpoints of those of the groups that are known."""
        return {key: [*replicas] for key in keys if (replicas := self.replicas(key)) is not None}

    def failure(self, key: str) -> str:
        """Returns the reason if all replicas of the group have failed, else an empty text."""
        group = self._latest(key)
        replicas = [] if group is None else group.replicas
        has_failed = replicas and all(replica.state is ReplicaState.FAILED for replica in replicas)
        return replicas[0].message if has_failed else ""

    def _latest(self, key: str) -> GroupStatus | None:
        recorded = self._recorded.get(key)
        return None if recorded is None else next(reversed(recorded.values()))
