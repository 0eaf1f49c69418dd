"""Reads the state of a cluster that the checks look at, with as few requests as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from cornserve.cli.cluster_doctor.permissions import NEEDED, Permission
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeForbiddenError, KubeNotFoundError, KubeUnknownTypeError
from cornserve.kubernetes.pods import has_ended
from cornserve.kubernetes.resources import (
    APPS,
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    STORAGE_CLASSES,
    JsonObject,
    ResourceType,
)
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, PART_OF_LABEL

T = TypeVar("T")

LABELS = f"{PART_OF_LABEL}=cornserve"


_LISTED = {
    PODS: LABELS,
    ENDPOINT_SLICES: LABELS,
    LEASES: None,
    CONFIG_MAPS: LABELS,
    PERSISTENT_VOLUME_CLAIMS: None,
    NODES: None,
    STORAGE_CLASSES: None,
}
"""The label selector for each type of which all objects are read."""


class Missing:
    """The object does not exist."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The state of a cluster. None: the user may not read it."""

    host: str
    namespace_name: str
    version: str
    schemas: JsonObject
    """The OpenAPI document of Cornserve's types. Empty if their CRDs are not installed."""
    missing_permissions: list[Permission]
    namespace: JsonObject | Missing | None
    pods: list[JsonObject] | None
    """Pods of Cornserve in the namespace."""
    endpoint_slices: list[JsonObject] | None
    """EndpointSlices of Cornserve in the namespace."""
    leases: list[JsonObject] | None
    settings: list[JsonObject] | None
    """ConfigMaps of Cornserve in the namespace."""
    claims: list[JsonObject] | None
    nodes: list[JsonObject] | None
    storage_classes: list[JsonObject] | None

    @classmethod
    async def read(cls, client: KubeClient) -> ClusterFacts:
        """Raises `KubeApiError`, except for missing permissions."""
        version = await client.server_version()  # first: it shows whether the API server can be reached
        schemas, permissions, namespace = await asyncio.gather(
            _schemas(client), _missing_permissions(client), _object(client, NAMESPACES, client.namespace)
        )
        listed = await asyncio.gather(*(_objects(client, type, labels) for type, labels in _LISTED.items()))
        objects = dict(zip(_LISTED, listed, strict=True))
        return cls(
            host=client.host,
            namespace_name=client.namespace,
            version=version,
            schemas=schemas,
            missing_permissions=permissions,
            namespace=namespace,
            pods=objects[PODS],
            endpoint_slices=objects[ENDPOINT_SLICES],
            leases=objects[LEASES],
            settings=objects[CONFIG_MAPS],
            claims=objects[PERSISTENT_VOLUME_CLAIMS],
            nodes=objects[NODES],
            storage_classes=objects[STORAGE_CLASSES],
        )

    def component(self, name: str) -> list[JsonObject]:
        """Returns the pods of a component, without those that have ended: others have replaced them."""
        pods = (pod for pod in self.pods or () if not has_ended(pod))
        return [pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) == name]


async def _missing_permissions(client: KubeClient) -> list[Permission]:
    allowed = await asyncio.gather(*(_is_allowed(client, permission) for permission in NEEDED))
    return [permission for permission, is_allowed in zip(NEEDED, allowed, strict=True) if not is_allowed]


async def _is_allowed(client: KubeClient, permission: Permission) -> bool:
    attributes = {
        "namespace": client.namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": permission.resource,
        "subresource": permission.subresource,
    }
    review = {
        "apiVersion": SELF_SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SELF_SUBJECT_ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    return bool((await client.create(SELF_SUBJECT_ACCESS_REVIEWS, review))["status"]["allowed"])


async def _schemas(client: KubeClient) -> JsonObject:
    try:
        return await client.openapi(APPS.api_version)
    except (KubeNotFoundError, KubeUnknownTypeError):
        return {}


async def _object(client: KubeClient, type: ResourceType, name: str) -> JsonObject | Missing | None:
    try:
        return await _readable(client.get(type, name))
    except KubeNotFoundError:
        return Missing()


async def _objects(client: KubeClient, type: ResourceType, labels: str | None = None) -> list[JsonObject] | None:
    listing = await _readable(client.list(type, label_selector=labels))
    return None if listing is None else listing.items


async def _readable(reading: Awaitable[T]) -> T | None:
    try:
        return await reading
    except (KubeForbiddenError, KubeUnknownTypeError):
        return None
