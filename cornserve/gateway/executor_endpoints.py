"""The endpoints of executor groups: those that a source reports, or those in the records of apps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Protocol

from cornserve.app.record import AppStatus, GroupStatus, ReplicaState
from cornserve.control.store.record_cache import RecordCache

Endpoints = Mapping[str, Mapping[str, str]]
"""Replica ids by endpoint, by executor group."""


class EndpointSource(Protocol):
    """Reports the endpoints of executors."""

    def watch(self) -> AsyncIterator[Endpoints]:
        """Yields the endpoints of the groups that exist, now and after each change. Runs until closed.

        The endpoints of draining executors are included while callers may be connected to them.
        """


class ExecutorEndpoints:
    """The endpoints as they were read last.

    Args:
        apps: the records of apps, whose endpoints count without a source.
    """

    def __init__(self, apps: RecordCache[Any, AppStatus], source: EndpointSource | None) -> None:
        self._apps = apps
        self._source = source
        self._reported: Endpoints = {}
        """The endpoints that the source has reported last."""
        self.read = asyncio.Event()
        """Set when the endpoints have been read for the first time. The records need no further read."""
        if source is None:
            self.read.set()

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Follows the source, if there is one. Runs until cancelled."""
        if self._source is None:
            return
        async for endpoints in self._source.watch():
            self._reported = endpoints
            self.read.set()
            on_change()

    def by_group(self) -> dict[str, list[str]]:
        """Returns the endpoints of ready replicas by group key. If apps share a group, the newest record wins."""
        if self._source is not None:
            return {key: list(group) for key, group in self._reported.items()}
        return {group.key: group.endpoints for group in self._recorded_groups()}

    def replica_ids(self) -> dict[str, str]:
        """Returns replica ids by endpoint."""
        if self._source is not None:
            return {endpoint: id for group in self._reported.values() for endpoint, id in group.items()}
        replicas = (replica for group in self._recorded_groups() for replica in group.replicas)
        return {replica.endpoint: replica.id for replica in replicas if replica.endpoint is not None}

    def failed_groups(self) -> dict[str, str]:
        """Returns the executor groups whose replicas have all failed, with the reason."""
        return {
            group.key: group.replicas[0].message
            for group in self._recorded_groups()
            if group.replicas and all(replica.state is ReplicaState.FAILED for replica in group.replicas)
        }

    def _recorded_groups(self) -> Iterator[GroupStatus]:
        """Yields the executor groups in the records, those of the newest record last."""
        for record in sorted(self._apps.records.values(), key=lambda record: record.version):
            yield from record.status.groups
