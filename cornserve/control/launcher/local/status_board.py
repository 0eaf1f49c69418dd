"""What is observed of all replicas, for any number of watchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from cornserve.control.launcher.base import Replica, ReplicaId


class StatusBoard:
    def __init__(self) -> None:
        self._replicas: dict[ReplicaId, Replica] = {}
        self._changed = asyncio.Event()

    def replicas(self) -> list[Replica]:
        return list(self._replicas.values())

    def put(self, replica: Replica) -> None:
        if self._replicas.get(replica.id) != replica:
            self._replicas[replica.id] = replica
            self._notify()

    def replace(self, ended: ReplicaId, replica: Replica) -> None:
        """One change, not two: watchers never see the place of either empty."""
        del self._replicas[ended]
        self.put(replica)

    def remove(self, replica: ReplicaId) -> None:
        del self._replicas[replica]
        self._notify()

    async def watch(self) -> AsyncIterator[list[Replica]]:
        while True:
            changed = self._changed
            yield self.replicas()
            await changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
