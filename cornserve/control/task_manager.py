"""Task managers: one for each executor group (DESIGN §10).

A task manager decides how many replicas its group has and judges, from what the launcher observes, whether the
group serves, still starts, or will not start.
"""

from __future__ import annotations

from collections.abc import Sequence

from cornserve.app.record import GroupStatus, ReplicaState, ReplicaStatus
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Launcher, Replica

START_TRIES = 2
"""How many replicas in a row may end before they were ready until the group counts as failing."""


class TaskManager:
    def __init__(self, key: GroupKey, launcher: Launcher) -> None:
        self.key = key
        self._launcher = launcher
        self._wanted = 0
        self._replicas: list[Replica] = []

    async def want(self, group: ExecutorGroup) -> None:
        """Sets how many replicas run. To be repeated in every round: an earlier call may have failed."""
        self._wanted = group.replicas
        await self._launcher.apply(group)

    def observe(self, replicas: Sequence[Replica]) -> None:
        """Takes what the launcher sees of all groups."""
        self._replicas = [replica for replica in replicas if replica.group == self.key]

    @property
    def endpoints(self) -> list[str]:
        """Of the replicas that take invocations."""
        return [
            replica.endpoint
            for replica in self._replicas
            if replica.state is ReplicaState.READY and replica.endpoint is not None
        ]

    @property
    def waits_for(self) -> str:
        """What keeps a replica from taking invocations, as far as one says; for people."""
        waiting = (it for it in self._replicas if it.state in (ReplicaState.STARTING, ReplicaState.FAILED))
        return next((replica.doing for replica in waiting if replica.doing), "")

    @property
    def failed(self) -> Replica | None:
        """The replica whose end shows that this group will not start as it is."""
        if self.endpoints:
            return None
        tried = (replica for replica in self._replicas if replica.state is ReplicaState.FAILED)
        return next((replica for replica in tried if replica.failures >= START_TRIES or replica.unschedulable), None)

    @property
    def status(self) -> GroupStatus:
        return GroupStatus(
            key=self.key,
            wanted=self._wanted,
            replicas=[
                ReplicaStatus(id=it.id, state=it.state, message=it.doing, endpoint=it.endpoint, metrics=it.metrics)
                for it in self._replicas
            ],
        )
