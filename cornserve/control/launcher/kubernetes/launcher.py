"""The launcher of a Kubernetes cluster. All of its state is in the cluster: another launcher continues at any time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, GroupRefusedError, Replica, ReplicaId
from cornserve.control.launcher.kubernetes.group_objects import GroupObjects
from cornserve.control.launcher.kubernetes.loading_progress import LoadingProgress
from cornserve.control.launcher.kubernetes.logs import ClusterReplicaLogs
from cornserve.control.launcher.kubernetes.manifests import render_group
from cornserve.control.launcher.kubernetes.names import selector
from cornserve.control.launcher.kubernetes.observed_groups import ObservedGroups
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError, KubeForbiddenError, KubeInvalidError
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import DEPLOYMENTS, PODS
from cornserve.observe.error_log import ErrorLog
from cornserve.wire.credentials import ConnectionCredentials

log = logging.getLogger(__name__)

MERGE_SECONDS = 0.1
"""Changes within this time are handled together."""
RETRY_SECONDS = 5.0


class KubernetesLauncher:
    """Runs replicas as pods. Only one launcher may run per installation: that of the controller that leads.

    Args:
        load_credentials: reads the credentials of connections to executors, which may change.
    """

    def __init__(
        self, client: KubeClient, settings: ClusterSettings, load_credentials: Callable[[], ConnectionCredentials]
    ) -> None:
        labels = selector(settings.instance)
        self._settings = settings
        self._pods = Informer(client, PODS, label_selector=labels)
        self._deployments = Informer(client, DEPLOYMENTS, label_selector=labels)
        self._objects = GroupObjects(client, self._deployments, self._pods)
        self._observed = ObservedGroups(self._pods, self._deployments)
        self._progress = LoadingProgress(load_credentials, self._observed.changes.notify)
        self._logs = ClusterReplicaLogs(client, settings.instance)
        self._errors = ErrorLog(log, "cannot remove ended executor groups: %s")
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for informer in (self._pods, self._deployments):
            self._tasks += [asyncio.create_task(informer.run()), asyncio.create_task(self._observed.follow(informer))]
        await self._pods.synced.wait()
        await self._deployments.synced.wait()
        self._tasks.append(asyncio.create_task(self._maintain()))

    async def apply(self, group: ExecutorGroup) -> None:
        manifests = render_group(group, self._settings)
        try:
            await self._objects.apply(manifests)
        except KubeInvalidError as error:
            raise GroupRefusedError(f"Kubernetes refuses the executor {group.key}: {error}") from error
        except KubeForbiddenError as error:
            if not _refused_by_policy(error):
                raise
            raise GroupRefusedError(f"Kubernetes refuses the executor {group.key}: {error}") from error
        self._observed.set_wanted(group.key, group.replicas)

    async def delete(self, key: GroupKey) -> None:
        await self._objects.retire(key)
        self._observed.set_wanted(key, 0)

    async def prune(self, keep: set[GroupKey]) -> None:
        for key in self._observed.keys() - keep:
            await self.delete(key)

    def replicas(self) -> list[Replica]:
        return [self._with_progress(replica) for replica in self._observed.replicas()]

    def _with_progress(self, replica: Replica) -> Replica:
        message = self._progress.messages.get(replica.id) if replica.state is ReplicaState.STARTING else None
        return replica if message is None else replace(replica, message=message)

    async def watch(self) -> AsyncIterator[list[Replica]]:
        while True:
            changed = self._observed.changes.next_change()
            yield self.replicas()
            await changed.wait()

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        return await self._logs(replica, lines)

    async def _maintain(self) -> None:
        """Finishes what waits for pods. Runs until cancelled."""
        while True:
            changed = self._observed.changes.next_change()
            self._progress.observe(self._observed.loading())
            try:
                await self._objects.remove_ended()
                self._errors.clear()
            except KubeApiError as error:
                self._errors.report(str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await changed.wait()
            await asyncio.sleep(MERGE_SECONDS)

    async def close(self) -> None:
        await self._progress.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _refused_by_policy(error: KubeForbiddenError) -> bool:
    """Whether an admission policy refuses the object, in contrast to a missing permission of the controller."""
    return "denied" in error.message
