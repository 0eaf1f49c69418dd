"""The interface of launchers: declarative, healing, and without a memory of its own beyond what it is told and sees.

`apply` says what should run; the launcher makes it so and keeps it so: it replaces replicas that die, kills what
remains of their processes first, and drains those that are no longer wanted. After a crash, a new
launcher finds what runs. None of the calls waits for a replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NewType, Protocol

from cornserve.app.record import ReplicaState
from cornserve.task.spec import ExecutorSpec

GroupKey = NewType("GroupKey", str)
ReplicaId = NewType("ReplicaId", str)
"""Unique for ever: a replacement has another id."""


@dataclass(frozen=True, slots=True)
class ExecutorGroup:
    """An executor group: replicas of one executor spec."""

    spec: ExecutorSpec
    replicas: int

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.spec.key)


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica, as observed."""

    id: ReplicaId
    group: GroupKey
    state: ReplicaState
    message: str = ""
    endpoint: str | None = None
    failures: int = 0
    """How many replicas in a row, up to this one, have ended before they were ready."""
    pause: float = 0
    """If it has failed: seconds until its replacement starts."""
    unschedulable: bool = False
    """Whether another try would end the same: the machine is too small for it."""
    metrics: str | None = None
    """`host:port` where Prometheus finds its metrics."""

    @property
    def doing(self) -> str:
        """For people."""
        return f"{self.message}; starts again in {self.pause:g} s" if self.pause else self.message


class Launcher(Protocol):
    async def start(self) -> None:
        """Finds what runs. Replicas of groups that are not applied within a while stay until `delete` or `prune`."""

    async def apply(self, group: ExecutorGroup) -> None:
        """Makes the group's replicas run: started, healed, and drained, as the count says. Idempotent."""

    async def delete(self, key: GroupKey) -> None:
        """Drains and ends all replicas of the group. Idempotent."""

    async def prune(self, keep: set[GroupKey]) -> None:
        """Deletes every group that is not named, also those that an earlier launcher left behind."""

    def replicas(self) -> list[Replica]:
        """What is observed now."""

    def watch(self) -> AsyncIterator[list[Replica]]:
        """What is observed now, then again after each change; changes in between may be left out."""

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        """The last lines that the replica wrote, also if it has ended lately."""

    async def close(self) -> None:
        """Stops watching and healing; replicas run on."""
