"""Writes the objects of executor groups, and only those that differ from what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from contextlib import suppress

from cornserve.control.launcher.base import GroupKey
from cornserve.control.launcher.kubernetes.manifests import GroupManifests
from cornserve.control.launcher.kubernetes.names import HASH_ANNOTATION, RETIRED_ANNOTATION
from cornserve.control.launcher.kubernetes.newest_objects import NewestObjects
from cornserve.control.launcher.kubernetes.owned_objects import OwnedObjects
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeNotFoundError
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.pods import has_ended
from cornserve.kubernetes.resources import DEPLOYMENTS, JsonObject
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL


class GroupObjects:
    """Applies and deletes the objects of groups.

    Calls for groups that are up to date send no request, except for the first call for each group.
    """

    def __init__(self, client: KubeClient, owned: OwnedObjects, deployments: Informer, pods: Informer) -> None:
        self._client = client
        self._owned = owned
        self._deployments = deployments
        self._newest = NewestObjects(deployments)
        self._pods = pods
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
            found = self._newest.get(name)
            if found is not None and self._is_applied(found, manifests):
                return
            if found is None or found["metadata"].get("annotations", {}).get(HASH_ANNOTATION) != manifests.applied_hash:
                await self._client.apply(DEPLOYMENTS, manifests.deployment, force=True, dry_run=True)
                await self._owned.apply(manifests)
            written = await self._client.apply(DEPLOYMENTS, manifests.deployment, force=True)
            self._newest.record(written)
            self._generations[name] = written["metadata"]["generation"]

    async def restore(self, manifests: GroupManifests) -> None:
        """Restores the objects of a group that was applied. Raises `KubeApiError`: another attempt may succeed."""
        async with self._lock:
            await self._owned.restore(manifests)

    def _is_applied(self, found: JsonObject, manifests: GroupManifests) -> bool:
        metadata = found["metadata"]
        annotations = metadata.get("annotations", {})
        return bool(
            annotations.get(HASH_ANNOTATION) == manifests.applied_hash
            and annotations.get(RETIRED_ANNOTATION) == "false"
            and found["spec"].get("replicas") == manifests.replicas
            # A Deployment of an earlier launcher is applied once: someone may have changed it since then.
            and metadata["generation"] <= self._generations.get(manifests.name, 0)
        )

    def may_belong_to(self, key: GroupKey, apps: Set[str]) -> bool:
        """Whether one of the apps owns the group, or no owner is known."""
        found = self._newest.get(key)
        owners = set() if found is None else {each["name"] for each in found["metadata"].get("ownerReferences", ())}
        return not owners or not apps.isdisjoint(owners)

    async def retire(self, key: GroupKey) -> None:
        """Ends the pods of a group. Its objects stay until they have ended, so that late gateways find the pods."""
        async with self._lock:
            found = self._newest.get(key)
            if found is None and key in self._owned.groups() - self._running():
                await self._owned.delete(key)  # Someone has deleted the Deployment.
            if found is None or _is_retired(found):
                return
            patch = {"metadata": {"annotations": {RETIRED_ANNOTATION: "true"}}, "spec": {"replicas": 0}}
            with suppress(KubeNotFoundError):
                self._newest.record(await self._client.merge_patch(DEPLOYMENTS, key, patch))

    async def remove_ended(self) -> None:
        """Deletes the objects of retired groups whose pods have ended."""
        running = self._running()
        for name in list(self._deployments.objects):
            async with self._lock:
                found = self._newest.get(name)
                if found is not None and name not in running and _has_no_pods(found):
                    await self._delete_pod_group(found, running)
                    await self._delete(name, found["metadata"]["uid"])

    def _running(self) -> set[GroupKey]:
        """Returns the groups with pods that have not ended. Kubernetes keeps pods that a node has evicted."""
        pods = (pod for pod in self._pods.objects.values() if not has_ended(pod))
        return {GroupKey(pod["metadata"]["labels"][EXECUTOR_LABEL]) for pod in pods}

    async def _delete_pod_group(self, deployment: JsonObject, running: Set[str]) -> None:
        """Deletes the PodGroup of a Deployment if no other Deployment needs it."""
        pod_group = _pod_group(deployment)
        used = any(
            _pod_group(other) == pod_group and (name in running or not _has_no_pods(other))
            for name, other in self._deployments.objects.items()
            if name != deployment["metadata"]["name"]
        )
        if pod_group is not None and not used:
            await self._owned.delete_pod_group(pod_group)

    async def _delete(self, name: str, uid: str) -> None:
        await self._owned.delete(name)
        # The Deployment is deleted last: as long as it exists, an interrupted deletion is repeated.
        with suppress(KubeNotFoundError):
            await self._client.delete(DEPLOYMENTS, name, uid=uid, propagation="Background")
        self._generations.pop(name, None)


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
