"""Task managers: one per executor group [C §3.2].

A task manager sets the number of replicas of its group and derives from the launcher's observations whether the group
serves, still starts, or has failed to start.
"""

from __future__ import annotations

from collections.abc import Sequence

from cornserve.app.record import GroupStatus, ReplicaState, ReplicaStatus
from cornserve.control.launcher.base import (
    ExecutorGroup,
    GroupKey,
    GroupRefusedError,
    Launcher,
    LauncherError,
    Replica,
)

MAX_START_FAILURES = 2
"""After this number of consecutive replicas that exited before they were ready, the group has failed."""


def _is_final(replica: Replica) -> bool:
    """Returns whether the failure of a replica is that of its group."""
    return replica.failures >= MAX_START_FAILURES or replica.unschedulable or replica.cannot_start


class TaskManager:
    def __init__(self, key: GroupKey, launcher: Launcher) -> None:
        self.key = key
        self._launcher = launcher
        self._wanted = 0
        self._executor, self._gpus, self._apps = "", 0, 0
        self.refusal: GroupRefusedError | None = None
        """The error with which the launcher refuses the group."""
        self._error = ""
        """Why the last `apply` has failed, for users."""
        self._replicas: Sequence[Replica] = ()
        self.endpoints: Sequence[str] = ()
        """The endpoints of the ready replicas that gateways can find."""
        self._status: GroupStatus | None = None
        """The status, until something changes: most groups do not change from one round to the next."""

    async def apply(self, group: ExecutorGroup) -> None:
        """Sets the number of replicas. Call it in every round, because an earlier call may have failed.

        Raises `LauncherError`.
        """
        before = self._wanted, self._executor, self._apps, self._gpus
        self._wanted = group.replicas
        self._executor, self._apps = group.spec.executor, len(group.owners)
        self._gpus = self._launcher.gpus(group.spec)
        if before != (self._wanted, self._executor, self._apps, self._gpus):
            self._status = None
        self.refusal, self._error = None, ""
        try:
            await self._launcher.apply(group)
        except GroupRefusedError as error:
            self.refusal = error
        except LauncherError as error:
            self._error = str(error)
            raise

    def observe(self, replicas: Sequence[Replica]) -> None:
        """Updates the observed state from the replicas of the group."""
        if replicas == self._replicas:
            return
        self._replicas, self._status = replicas, None
        ready = (replica for replica in replicas if replica.state is ReplicaState.READY and not replica.reason)
        self.endpoints = [replica.endpoint for replica in ready if replica.endpoint is not None]

    @property
    def unreachable(self) -> str:
        """The reason why gateways cannot find the ready replicas, for users. Empty if they can."""
        ready = (replica for replica in self._replicas if replica.state is ReplicaState.READY)
        return next((replica.message for replica in ready if replica.reason), "")

    @property
    def waiting_reason(self) -> str:
        """The reason why no replica can be used, for users. Empty if it is not known."""
        pending = (
            replica for replica in self._replicas if replica.state in (ReplicaState.STARTING, ReplicaState.FAILED)
        )
        descriptions = (replica.description for replica in pending if replica.description)
        return self._error or self.unreachable or next(descriptions, "")

    @property
    def failed_replica(self) -> Replica | None:
        """The replica whose exit shows that the group cannot start, or None."""
        if self.endpoints:
            return None
        failed = (replica for replica in self._replicas if replica.state is ReplicaState.FAILED)
        return next((replica for replica in failed if _is_final(replica)), None)

    @property
    def status(self) -> GroupStatus:
        if self._status is None:
            self._status = self._new_status()
        return self._status

    def _new_status(self) -> GroupStatus:
        return GroupStatus(
            key=self.key,
            executor=self._executor,
            gpus=self._gpus,
            apps=self._apps,
            wanted=self._wanted,
            replicas=[
                ReplicaStatus(
                    id=replica.id,
                    state=replica.state,
                    message=replica.description,
                    reason=replica.reason,
                    endpoint=replica.endpoint,
                    metrics=replica.metrics,
                )
                for replica in self._replicas
            ],
        )
