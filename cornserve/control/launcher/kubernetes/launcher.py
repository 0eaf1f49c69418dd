"""The launcher of a Kubernetes cluster. All of its state is in the cluster: another launcher continues at any time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence, Set
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace

from cornserve.app.record import ReplicaExit, ReplicaState
from cornserve.control.launcher.base import (
    ExecutorGroup,
    GroupKey,
    GroupRefusedError,
    LauncherError,
    Replica,
    ReplicaId,
)
from cornserve.control.launcher.kubernetes.cell_groups import CellGroups
from cornserve.control.launcher.kubernetes.group_objects import GroupObjects
from cornserve.control.launcher.kubernetes.loading_progress import LoadingProgress
from cornserve.control.launcher.kubernetes.logs import ClusterReplicaLogs
from cornserve.control.launcher.kubernetes.missing_endpoints import MissingEndpoints
from cornserve.control.launcher.kubernetes.names import pod_group_selector, selector
from cornserve.control.launcher.kubernetes.observed_groups import ObservedGroups
from cornserve.control.launcher.kubernetes.owned_objects import OwnedObjects
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError, KubeForbiddenError, KubeInvalidError
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    SERVICES,
    ResourceType,
)
from cornserve.kubernetes_resources.replica_reason import ReplicaReason
from cornserve.observe.error_log import ErrorLog
from cornserve.task.spec import ExecutorSpec
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
        self._services = Informer(client, SERVICES, label_selector=labels)
        self._budgets = Informer(client, POD_DISRUPTION_BUDGETS, label_selector=labels)
        self._pod_groups = Informer(client, POD_GROUPS, label_selector=pod_group_selector(settings.instance))
        self._slices = Informer(client, ENDPOINT_SLICES, label_selector=labels)
        owned = {
            SERVICES: self._services,
            POD_DISRUPTION_BUDGETS: self._budgets,
            POD_GROUPS: self._pod_groups,
        }
        self._owned = OwnedObjects(client, owned)
        self._objects = GroupObjects(client, self._owned, self._deployments, self._pods)
        self._cells = CellGroups(settings, self._deployments)
        self._observed = ObservedGroups(self._pods, self._deployments)
        self._missing_endpoints = MissingEndpoints(self._slices, self._services)
        self._progress = LoadingProgress(load_credentials, self._observed.changes.notify)
        self._logs = ClusterReplicaLogs(client, settings.instance)
        self._errors = ErrorLog(log, "cannot maintain executor groups: %s")
        self._informers = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._follows_pod_groups = False

    async def start(self) -> None:
        for informer in (self._pods, self._deployments, self._services, self._budgets, self._slices):
            await self._informers.enter_async_context(informer.running())
        for informer in (self._pods, self._deployments, self._slices):
            self._tasks.append(asyncio.create_task(self._observed.follow(informer)))
        for type in (SERVICES, POD_DISRUPTION_BUDGETS):
            self._restore_later(type)
        self._tasks.append(asyncio.create_task(self._maintain()))

    async def apply(self, group: ExecutorGroup) -> None:
        manifests = self._cells.render(group)
        with _api_errors(f"cannot apply the executor {group.key}"):
            try:
                await self._objects.apply(manifests)
            except KubeApiError as error:
                if not _refuses_object(error):
                    raise
                raise GroupRefusedError(f"Kubernetes refuses the executor {group.key}: {error}") from error
            self._observed.set_wanted(group.key, group.replicas)
            if manifests.pod_group is not None and not self._follows_pod_groups:
                self._follows_pod_groups = True  # The cluster has PodGroups.
                self._tasks.append(asyncio.create_task(self._pod_groups.run()))
                self._restore_later(POD_GROUPS)
            await self._objects.restore(manifests)

    def _restore_later(self, type: ResourceType) -> None:
        """Makes watchers apply all groups again when an object of this type differs from its manifest."""
        self._tasks.append(asyncio.create_task(self._owned.follow(type, self._observed.changes.notify)))

    async def delete(self, key: GroupKey) -> None:
        self._cells.forget(key)
        with _api_errors(f"cannot end the executor {key}"):
            await self._objects.retire(key)
        self._observed.set_wanted(key, 0)
        self._observed.forget_exits(key)

    async def prune(self, keep: set[GroupKey], unreadable: Set[str] = frozenset()) -> None:
        for key in (self._observed.keys() | self._owned.groups()) - keep:
            if not (unreadable and self._objects.may_belong_to(key, unreadable)):
                await self.delete(key)

    def gpus(self, spec: ExecutorSpec) -> int:
        return self._settings.gpus(spec)

    def slots(self, slot_type: str | None) -> None:
        return None  # Nodes may be added.

    def replicas(self) -> list[Replica]:
        return [self._explain(replica) for replica in self._observed.replicas()]

    def exits(self, key: GroupKey) -> Sequence[ReplicaExit]:
        return self._observed.exits(key)

    def _explain(self, replica: Replica) -> Replica:
        """Adds what the statuses of pods do not contain."""
        if replica.state is ReplicaState.READY and replica.group in self._missing_endpoints.problems:
            problem = self._missing_endpoints.problems[replica.group]
            return replace(replica, message=problem, reason=ReplicaReason.NO_ENDPOINTS)
        if replica.state is not ReplicaState.STARTING:
            return replica
        message = self._progress.messages.get(replica.id)
        return self._cells.explain(replica) if message is None else replace(replica, message=message)

    async def watch(self) -> AsyncIterator[list[Replica]]:
        while True:
            changed = self._observed.changes.next_change()
            yield self.replicas()
            await asyncio.sleep(MERGE_SECONDS)  # The next change is reported at once if none came shortly before.
            await changed.wait()

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        return await self._logs(replica, lines)

    async def _maintain(self) -> None:
        """Places cells, deletes retired groups whose pods have ended, and finds groups without endpoints.

        Runs until cancelled.
        """
        while True:
            changed = self._observed.changes.next_change()
            self._progress.observe(self._observed.loading())
            if self._missing_endpoints.update(self._observed.ready_groups(), asyncio.get_running_loop().time()):
                self._observed.changes.notify()
            try:
                await self._place_cells()
                await self._objects.remove_ended()
                self._errors.clear()
            except (KubeApiError, LauncherError, GroupRefusedError) as error:
                self._errors.report(str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._deadline):
                    await changed.wait()
            await asyncio.sleep(MERGE_SECONDS)

    @property
    def _deadline(self) -> float | None:
        """The time of the next maintenance that can have an effect without a change, or None."""
        return min(filter(None, (self._cells.deadline, self._missing_endpoints.deadline)), default=None)

    async def _place_cells(self) -> None:
        """Releases cells that cannot be placed, and starts further attempts."""
        self._cells.update(self._pods.objects, asyncio.get_running_loop().time())
        for group in self._cells.pending():
            await self.apply(group)
            self._cells.mark_applied(group.key)
            self._observed.changes.notify()

    async def close(self) -> None:
        await self._progress.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._informers.aclose()


@contextmanager
def _api_errors(operation: str) -> Iterator[None]:
    """Raises errors of the Kubernetes API as `LauncherError`."""
    try:
        yield
    except KubeApiError as error:
        raise LauncherError(f"{operation}: {error}") from error


def _refuses_object(error: KubeApiError) -> bool:
    """Whether the API server refuses the object itself, so that another attempt does not help."""
    if isinstance(error, KubeForbiddenError):
        return "denied" in error.message  # by an admission policy, in contrast to a permission that is missing
    # The API server reports a malformed quantity as an internal error.
    return isinstance(error, KubeInvalidError) or "failed to convert new object" in error.message
