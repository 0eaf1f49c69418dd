"""The observed state of all replicas and their last exits, with change notification."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence

from cornserve.app.record import MAX_EXITS, ReplicaExit
from cornserve.concurrency import Broadcast
from cornserve.control.launcher.base import GroupKey, Replica, ReplicaId


class StatusBoard:
    def __init__(self) -> None:
        self._replicas: dict[ReplicaId, Replica] = {}
        self._exits: dict[GroupKey, deque[ReplicaExit]] = {}
        self._changes = Broadcast()

    def replicas(self) -> list[Replica]:
        return list(self._replicas.values())

    def update(self, replica: Replica) -> None:
        if self._replicas.get(replica.id) != replica:
            self._replicas[replica.id] = replica
            self._changes.notify()

    def replace(self, ended: ReplicaId, replica: Replica) -> None:
        """Replaces a replica in one change: watchers never see a list without either of them."""
        del self._replicas[ended]
        self.update(replica)

    def remove(self, replica: ReplicaId) -> None:
        del self._replicas[replica]
        self._changes.notify()

    def exits(self, key: GroupKey) -> Sequence[ReplicaExit]:
        return self._exits.get(key, ())

    def add_exit(self, key: GroupKey, exit: ReplicaExit) -> None:
        self._exits.setdefault(key, deque(maxlen=MAX_EXITS)).append(exit)
        self._changes.notify()

    def forget_exits(self, key: GroupKey) -> None:
        self._exits.pop(key, None)

    async def watch(self) -> AsyncIterator[list[Replica]]:
        while True:
            changed = self._changes.next_change()
            yield self.replicas()
            await changed.wait()
