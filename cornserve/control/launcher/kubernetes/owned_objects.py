"""The objects of executor groups besides their Deployments, which are restored if someone deletes or changes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from cornserve.control.launcher.base import GroupKey, GroupRefusedError
from cornserve.control.launcher.kubernetes.manifests import GroupManifests
from cornserve.control.launcher.kubernetes.names import FIELD_MANAGER
from cornserve.control.launcher.kubernetes.newest_objects import NewestObjects
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import (
    KubeConflictError,
    KubeNotFoundError,
    KubeUnknownTypeError,
)
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import POD_GROUPS, JsonObject, ResourceType
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL, MANAGED_BY_LABEL

log = logging.getLogger(__name__)

ObjectId = tuple[ResourceType, str]


class OwnedObjects:
    """Writes Services, PodDisruptionBudgets and PodGroups. Objects that equal their manifests need no request.

    Args:
        informers: the informer of each type. It may start later: its objects are not compared until then.
    """

    def __init__(self, client: KubeClient, informers: Mapping[ResourceType, Informer]) -> None:
        self._client = client
        self._informers = informers
        self._newest = {type: NewestObjects(informer) for type, informer in informers.items()}
        self._desired: dict[ObjectId, JsonObject] = {}
        self._accepted: dict[ObjectId, JsonObject] = {}
        """The content of restored objects as the cluster has stored it. An admission webhook may have changed it."""

    async def apply(self, manifests: GroupManifests) -> None:
        """Applies all objects of a group. Raises `GroupRefusedError` if the cluster has no PodGroups."""
        for type, desired in manifests.owned:
            try:
                self._newest[type].record(await self._client.apply(type, desired, force=True))
            except (KubeNotFoundError, KubeUnknownTypeError) as error:
                if type != POD_GROUPS:
                    raise
                raise GroupRefusedError(
                    f"this cluster has no PodGroups of {POD_GROUPS.api_version}, which cells need: switch them on, or "
                    "set the value executors.cellPlacement to Affinity"
                ) from error

    async def restore(self, manifests: GroupManifests) -> None:
        """Writes those objects of an applied group that someone has deleted or changed."""
        for type, desired in manifests.owned:
            name = desired["metadata"]["name"]
            self._desired[type, name] = desired
            if self._is_as_desired(type, name):
                continue
            found = self._newest[type].get(name)
            log.warning("someone has %s the %s %s: restoring it", "changed" if found else "deleted", type.kind, name)
            with suppress(KubeConflictError):  # The informer delivers the newer object.
                await self._write(type, desired, found)

    async def _write(self, type: ResourceType, desired: JsonObject, found: JsonObject | None) -> None:
        if found is None:
            self._newest[type].record(await self._client.apply(type, desired, force=True))
            return
        # A server-side apply would keep what others have added, such as a port.
        labels = found["metadata"]["labels"] | desired["metadata"]["labels"]
        restored = found | {"metadata": found["metadata"] | {"labels": labels}, "spec": desired["spec"]}
        try:
            written = await self._client.replace(type, restored)
        except KubeNotFoundError:
            return  # The informer delivers the deletion.
        self._newest[type].record(written)
        self._accepted[type, desired["metadata"]["name"]] = _content(written)

    def _is_as_desired(self, type: ResourceType, name: str) -> bool:
        if not self._informers[type].synced.is_set():
            return True
        desired, found = self._desired[type, name], self._newest[type].get(name)
        if found is None:
            return False
        content, wanted = _content(found), _content(desired)
        has_fields = all(content[part].get(field) == value for part in wanted for field, value in wanted[part].items())
        return has_fields or self._accepted.get((type, name)) == content

    async def follow(self, type: ResourceType, on_difference: Callable[[], None]) -> None:
        """Calls `on_difference` when an object differs from its manifest. Runs until cancelled."""
        informer = self._informers[type]
        changed_names = informer.track_changes()
        while True:
            changed = informer.next_change()
            names = [name for name in changed_names if (type, name) in self._desired]
            changed_names.clear()
            if not all(self._is_as_desired(type, name) for name in names):
                on_difference()
            await changed.wait()

    def groups(self) -> set[GroupKey]:
        """Returns the groups that have a Service or a PodDisruptionBudget."""
        return {
            GroupKey(name)
            for type, informer in self._informers.items()
            if type != POD_GROUPS
            for name, found in informer.objects.items()
            if _is_of_group(found, name)
        }

    async def delete(self, name: str) -> None:
        """Deletes the objects of a group, except the PodGroup of its cell. Idempotent."""
        for type in self._informers:
            if type != POD_GROUPS:
                await self._delete(type, name)

    async def delete_pod_group(self, name: str) -> None:
        """Deletes a PodGroup. Idempotent."""
        await self._delete(POD_GROUPS, name)

    async def _delete(self, type: ResourceType, name: str) -> None:
        self._desired.pop((type, name), None)
        self._accepted.pop((type, name), None)
        with suppress(KubeNotFoundError):
            await self._client.delete(type, name)


def _content(found: JsonObject) -> JsonObject:
    """Returns what is compared. Gateways find the EndpointSlices of a Service by its labels."""
    return {"labels": found["metadata"]["labels"], "spec": found["spec"]}


def _is_of_group(found: JsonObject, name: str) -> bool:
    """Whether a launcher has created the object. Users may create Services with some of the labels."""
    labels: JsonObject = found["metadata"]["labels"]
    return bool(labels.get(EXECUTOR_LABEL) == name and labels.get(MANAGED_BY_LABEL) == FIELD_MANAGER)
