"""The launcher interface: declarative and self-healing.

`apply` sets the desired state of an executor group. The launcher starts replicas, replaces those that die after it has
killed their remaining processes, and drains those that are not wanted any more. After a crash, a new
launcher restores its state from disk and from the process table. No call waits for a replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from json import dumps
from typing import NewType, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from cornserve.app.record import FailureReason, ReplicaExit, ReplicaState
from cornserve.app.settings import GpuTypeName, ModelStorage
from cornserve.task.spec import ExecutorSpec

GroupKey = NewType("GroupKey", str)
ReplicaId = NewType("ReplicaId", str)
"""Never reused: a replacement has a new id."""


class PodSettings(BaseModel):
    """Settings of the pods of an executor group. Launchers without pods refuse all but the GPU type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: dict[str, JsonValue] = Field(default_factory=dict)
    """A pod template that is merged into the launcher's own."""
    gpu_type: GpuTypeName | None = None
    """The type of the replicas' GPUs. By default, any."""
    storage: ModelStorage | None = None
    """The storage of the model's files."""


@dataclass(frozen=True, slots=True)
class AppOwner:
    """An app that needs an executor group."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ExecutorCell:
    """Executors that run close together, such as on one node."""

    name: str
    """A valid label and name of a Kubernetes object. Groups of different cells are different groups."""
    pods: int
    """The number of replicas of all groups of the cell together, which run or do not run together. It is the same as
    long as the cell exists."""


@dataclass(frozen=True)
class ExecutorGroup:
    """The desired replicas of one executor spec."""

    spec: ExecutorSpec
    replicas: int
    pod: PodSettings = field(default_factory=PodSettings)
    cell: ExecutorCell | None = None
    owners: tuple[AppOwner, ...] = ()
    """The apps that need the group, sorted by name."""
    load: float | None = None
    """The replicas that would be needed if they could be divided. None: unknown."""

    @cached_property
    def key(self) -> GroupKey:
        return group_key(self.spec, self.pod, self.cell)


def group_key(spec: ExecutorSpec, pod: PodSettings, cell: ExecutorCell | None = None) -> GroupKey:
    """Returns a key that is equal for equal arguments only, and is a valid name of a Kubernetes object."""
    if pod == PodSettings() and cell is None:
        return GroupKey(spec.key)
    identity = dumps([spec.key, pod.model_dump(mode="json", exclude_defaults=True), cell and cell.name], sort_keys=True)
    return GroupKey(f"{spec.executor}-{sha256(identity.encode()).hexdigest()[:12]}")


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
    cannot_start: bool = False
    """The replica exited because it cannot start: another one would fail in the same way."""
    metrics: str | None = None
    """`host:port` of the replica's Prometheus metrics."""
    reason: str = ""
    """Why the replica is not ready, as a reason of a Kubernetes condition, such as `InsufficientCapacity`. It may be
    empty. A ready replica has a reason if gateways cannot find it."""

    @property
    def description(self) -> str:
        """The message for users, with the restart delay if one is pending."""
        return f"{self.message}; starts again in {self.restart_delay:g} s" if self.restart_delay else self.message


@dataclass(frozen=True, slots=True)
class SlotCount:
    """The GPUs, or the CPU slots, of a machine."""

    kind: str
    total: int
    free: int


class GroupRefusedError(Exception):
    """The launcher cannot run a group with these settings. The message is for users."""

    def __init__(self, message: str, reason: FailureReason = FailureReason.INVALID_POD_TEMPLATE) -> None:
        super().__init__(message)
        self.reason = reason


class LauncherError(Exception):
    """The launcher cannot do it now. Another attempt may succeed. The message is for users."""


class Launcher(Protocol):
    async def start(self) -> None:
        """Adopts the replicas that run. They keep running until `apply`, `delete` or `prune` stops them."""

    async def apply(self, group: ExecutorGroup) -> None:
        """Sets the number of replicas of a group: starts, replaces or drains replicas to match it. Idempotent.

        Raises `GroupRefusedError` if the group's settings are wrong, and `LauncherError`.
        """

    async def delete(self, key: GroupKey) -> None:
        """Drains and stops all replicas of a group. Idempotent. Raises `LauncherError`."""

    async def prune(self, keep: set[GroupKey], unreadable: Set[str] = frozenset()) -> None:
        """Deletes all groups that are not in `keep`, including groups that an earlier launcher started.

        Args:
            unreadable: the names of apps whose groups are not known. Groups that may belong to them are kept.
        """

    def gpus(self, spec: ExecutorSpec) -> int:
        """Returns the number of GPUs or CPU slots that a replica of the executor occupies."""

    def slots(self, slot_type: str | None) -> SlotCount | None:
        """Returns the slots of a type, or of all types. None if the launcher cannot know what may become available."""

    def replicas(self) -> list[Replica]:
        """Returns the current state of all replicas."""

    def exits(self, key: GroupKey) -> Sequence[ReplicaExit]:
        """Returns the last `MAX_EXITS` exits of the group's replicas, oldest first.

        Replicas that were stopped on purpose are left out. The exits are kept until `delete` or the launcher's end.
        """

    def watch(self) -> AsyncIterator[list[Replica]]:
        """Yields the state of all replicas now and after changes. Changes in quick succession may be merged."""

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        """Returns the last lines of a replica's log. The logs of recently stopped replicas are available as well."""

    async def close(self) -> None:
        """Stops monitoring and replacing replicas. The replicas keep running."""
