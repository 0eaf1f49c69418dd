"""Writes the objects of executor groups, and only those that differ from what runs."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from cornserve.control.launcher.base import GroupKey, GroupRefusedError
from cornserve.control.launcher.kubernetes.manifests import GroupManifests
from cornserve.control.launcher.kubernetes.names import HASH_ANNOTATION, RETIRED_ANNOTATION
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeNotFoundError, KubeUnknownTypeError
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    SERVICES,
    JsonObject,
)
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL

log = logging.getLogger(__name__)

UNSEEN_SECONDS = 30.0
"""An own write that the informer has not seen after this time was undone by someone else."""


class GroupObjects:
    """Applies and deletes the objects of groups. Calls for groups that are up to date send no request."""

    def __init__(self, client: KubeClient, deployments: Informer, pods: Informer) -> None:
        self._client = client
        self._deployments = deployments
        self._pods = pods
        self._written: dict[str, tuple[float, JsonObject]] = {}
        """Deployments as they were written last, with the time, until the informer has seen them."""
        self._generations: dict[str, int] = {}
        """The generations of Deployments that are as they were applied: a later one is a change by someone else."""
        self._lock = asyncio.Lock()

    async def apply(self, manifests: GroupManifests) -> None:
        """Applies the objects of a group.

        Raises:
            KubeApiError: nothing has changed if Kubernetes refuses the Deployment.
            GroupRefusedError: the cluster has no PodGroups.
        """
        async with self._lock:
            name = manifests.name
            found = self._current(name)
            if found is not None and self._is_applied(found, manifests):
                return
            if found is None or found["metadata"].get("annotations", {}).get(HASH_ANNOTATION) != manifests.applied_hash:
                await self._client.apply(DEPLOYMENTS, manifests.deployment, force=True, dry_run=True)
                if manifests.pod_group is not None:
                    await self._apply_pod_group(manifests.pod_group)
                await self._client.apply(SERVICES, manifests.service, force=True)
                await self._client.apply(POD_DISRUPTION_BUDGETS, manifests.disruption_budget, force=True)
            written = await self._client.apply(DEPLOYMENTS, manifests.deployment, force=True)
            self._record(written)
            self._generations[name] = written["metadata"]["generation"]

    async def _apply_pod_group(self, pod_group: JsonObject) -> None:
        try:
            await self._client.apply(POD_GROUPS, pod_group, force=True)
        except (KubeNotFoundError, KubeUnknownTypeError) as error:
            raise GroupRefusedError(
                f"this cluster has no PodGroups of {POD_GROUPS.api_version}, which cells need: switch them on, or set "
                "the value executors.cellPlacement to Affinity"
            ) from error

    def _is_applied(self, found: JsonObject, manifests: GroupManifests) -> bool:
        metadata = found["metadata"]
        annotations = metadata.get("annotations", {})
        return bool(
            annotations.get(HASH_ANNOTATION) == manifests.applied_hash
            and annotations.get(RETIRED_ANNOTATION) == "false"
            and found["spec"].get("replicas") == manifests.replicas
            and metadata["generation"] <= self._generations.setdefault(manifests.name, metadata["generation"])
        )

    async def retire(self, key: GroupKey) -> None:
        """Ends the pods of a group. Its objects stay until they have ended, so that late gateways find the pods."""
        async with self._lock:
            found = self._current(key)
            if found is None or _is_retired(found):
                return
            patch = {"metadata": {"annotations": {RETIRED_ANNOTATION: "true"}}, "spec": {"replicas": 0}}
            with suppress(KubeNotFoundError):
                self._record(await self._client.merge_patch(DEPLOYMENTS, key, patch))

    async def remove_ended(self) -> None:
        """Deletes the objects of retired groups whose pods have ended."""
        running = {pod["metadata"]["labels"][EXECUTOR_LABEL] for pod in self._pods.objects.values()}
        for name in list(self._deployments.objects):
            async with self._lock:
                found = self._current(name)
                if found is not None and name not in running and _has_no_pods(found):
                    await self._delete_pod_group(found, running)
                    await self._delete(name, found["metadata"]["uid"])

    async def _delete_pod_group(self, deployment: JsonObject, running: set[str]) -> None:
        """Deletes the PodGroup of a Deployment if no other Deployment needs it."""
        pod_group = _pod_group(deployment)
        used = any(
            _pod_group(other) == pod_group and (name in running or not _has_no_pods(other))
            for name, other in self._deployments.objects.items()
            if name != deployment["metadata"]["name"]
        )
        if pod_group is not None and not used:
            with suppress(KubeNotFoundError):
                await self._client.delete(POD_GROUPS, pod_group)

    async def _delete(self, name: str, uid: str) -> None:
        for type in (SERVICES, POD_DISRUPTION_BUDGETS):
            with suppress(KubeNotFoundError):
                await self._client.delete(type, name)
        # The Deployment is deleted last: as long as it exists, an interrupted deletion is repeated.
        with suppress(KubeNotFoundError):
            await self._client.delete(DEPLOYMENTS, name, uid=uid, propagation="Background")
        self._generations.pop(name, None)

    def _record(self, written: JsonObject) -> None:
        self._written[written["metadata"]["name"]] = (_now(), written)

    def _current(self, name: str) -> JsonObject | None:
        """Returns the newest known Deployment."""
        seen = self._deployments.objects.get(name)
        if name not in self._written:
            return seen
        at, written = self._written[name]
        is_seen = seen is not None and seen["metadata"]["generation"] >= written["metadata"]["generation"]
        if is_seen or _now() - at > UNSEEN_SECONDS:
            del self._written[name]
            return seen
        return written


def _is_retired(deployment: JsonObject) -> bool:
    return bool(deployment["metadata"].get("annotations", {}).get(RETIRED_ANNOTATION) == "true")


def _pod_group(deployment: JsonObject) -> str | None:
    """Returns the name of the PodGroup of a Deployment's pods."""
    name: str | None = deployment["spec"]["template"]["spec"].get("schedulingGroup", {}).get("podGroupName")
    return name


def _has_no_pods(deployment: JsonObject) -> bool:
    """Whether a retired Deployment has stopped its pods. Those that still drain are not counted."""
    status = deployment.get("status", {})
    is_observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return _is_retired(deployment) and is_observed and not status.get("replicas")


def _now() -> float:
    return asyncio.get_running_loop().time()
