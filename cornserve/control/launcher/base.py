"""The launcher interface: declarative and self-healing.

`apply` sets the desired state of an executor group. The launcher starts replicas, replaces those that die after it has
killed their remaining processes, and drains those that are not wanted any more. After a crash, a new
launcher restores its state from disk and from the process table. No call waits for a replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NewType, Protocol

from cornserve.app.record import ReplicaState
from cornserve.task.spec import ExecutorSpec

GroupKey = NewType("GroupKey", str)
ReplicaId = NewType("ReplicaId", str)
"""Never reused: a replacement has a new id."""


@dataclass(frozen=True, slots=True)
class ExecutorGroup:
    """The desired replicas of one executor spec."""

    spec: ExecutorSpec
    replicas: int

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.spec.key)


@dataclass(frozen=True, slots=True)
class Replica:
    """The observed state of one replica."""

    id: ReplicaId
    group: GroupKey
    state: ReplicaState
    message: str = ""
    endpoint: str | None = None
    failures: int = 0
    """Number of consecutive replicas, including this replica, that exited before they were ready."""
    restart_delay: float = 0
    """Seconds until the replacement of a failed replica starts."""
    unschedulable: bool = False
    """The machine can never run this replica: it needs more GPUs or CPU slots than exist."""
    metrics: str | None = None
    """`host:port` of the replica's Prometheus metrics."""

    @property
    def description(self) -> str:
        """The message for users, with the restart delay if one is pending."""
        return f"{self.message}; starts again in {self.restart_delay:g} s" if self.restart_delay else self.message


class Launcher(Protocol):
    async def start(self) -> None:
        """Adopts the replicas that run. They keep running until `apply`, `delete` or `prune` stops them."""

    async def apply(self, group: ExecutorGroup) -> None:
        """Sets the number of replicas of a group: starts, replaces or drains replicas to match it. Idempotent."""

    async def delete(self, key: GroupKey) -> None:
        """Drains and stops all replicas of a group. Idempotent."""

    async def prune(self, keep: set[GroupKey]) -> None:
        """Deletes all groups that are not in `keep`, including groups that an earlier launcher started."""

    def replicas(self) -> list[Replica]:
        """Returns the current state of all replicas."""

    def watch(self) -> AsyncIterator[list[Replica]]:
        """Yields the state of all replicas now and after changes. Changes in quick succession may be merged."""

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        """Returns the last lines of a replica's log. The logs of recently stopped replicas are available as well."""

    async def close(self) -> None:
        """Stops monitoring and replacing replicas. The replicas keep running."""
