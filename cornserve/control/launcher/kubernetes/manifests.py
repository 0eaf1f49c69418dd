"""The objects of an executor group: a Deployment, a headless Service and a PodDisruptionBudget."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from json import dumps

from cornserve.control.launcher.base import AppOwner, ExecutorGroup
from cornserve.control.launcher.kubernetes.cells import avoid_nodes
from cornserve.control.launcher.kubernetes.devices import group_device
from cornserve.control.launcher.kubernetes.merge import merge_pod_template
from cornserve.control.launcher.kubernetes.names import (
    AVOIDED_NODES_ANNOTATION,
    CELL_LABEL,
    COMPONENT,
    FIELD_MANAGER,
    HASH_ANNOTATION,
    INVOCATION_PORT,
    INVOCATION_PORT_NAME,
    METRICS_PORT,
    RETIRED_ANNOTATION,
    object_name,
)
from cornserve.control.launcher.kubernetes.pod_template import render_pod, with_download_resources
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.kubernetes.resources import (
    APPS,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    SERVICES,
    JsonObject,
    ResourceType,
)
from cornserve.kubernetes_resources.labels import (
    COMPONENT_LABEL,
    EXECUTOR_LABEL,
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    NAME_LABEL,
    PART_OF_LABEL,
    VERSION_LABEL,
)

IMAGE_SECONDS = 1200
"""Time to pull an image, for the deadline after which `kubectl rollout status` reports that a roll-out has failed."""


@dataclass(frozen=True, slots=True)
class GroupManifests:
    """The objects of one executor group."""

    deployment: JsonObject
    service: JsonObject
    disruption_budget: JsonObject
    pod_group: JsonObject | None
    """The PodGroup of the cell, if pods of cells are placed together."""

    @property
    def applied_hash(self) -> str:
        """The hash of all objects without the number of replicas, so that scaling replaces no pod."""
        return str(self.deployment["metadata"]["annotations"][HASH_ANNOTATION])

    @property
    def owned(self) -> Sequence[tuple[ResourceType, JsonObject]]:
        """The objects besides the Deployment, in the order in which they are created."""
        pod_groups = [] if self.pod_group is None else [(POD_GROUPS, self.pod_group)]
        return [*pod_groups, (SERVICES, self.service), (POD_DISRUPTION_BUDGETS, self.disruption_budget)]

    @property
    def name(self) -> str:
        return str(self.deployment["metadata"]["name"])

    @property
    def replicas(self) -> int:
        return int(self.deployment["spec"]["replicas"])


def render_group(group: ExecutorGroup, settings: ClusterSettings, *, avoided: Collection[str] = ()) -> GroupManifests:
    """Renders the objects of a group.

    Args:
        avoided: the nodes that its pods avoid.

    Raises:
        GroupRefusedError: the key, the type of GPU or the user's pod template cannot be used.
    """
    metadata = _metadata(group, settings)
    deployment: JsonObject = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": _deployment_spec(group, settings, avoided),
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": _service_spec(group, settings)}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": _selector(group, settings)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
    pod_group = _pod_group(group, settings)
    identity = dumps([deployment, service, budget, *([pod_group] if pod_group else [])], sort_keys=True)
    annotations = {HASH_ANNOTATION: sha256(identity.encode()).hexdigest()[:16], RETIRED_ANNOTATION: "false"}
    if avoided:
        annotations[AVOIDED_NODES_ANNOTATION] = ",".join(sorted(avoided))
    deployment = {
        **deployment,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"replicas": group.replicas, **deployment["spec"]},
    }
    return GroupManifests(deployment, service, budget, pod_group)


def _pod_group(group: ExecutorGroup, settings: ClusterSettings) -> JsonObject | None:
    if group.cell is None or settings.cell_placement == "Affinity":
        return None
    labels = {
        name: value for name, value in _labels(group, settings).items() if name not in (EXECUTOR_LABEL, VERSION_LABEL)
    }
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {**_metadata(group, settings), "name": group.cell.name, "labels": labels},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": group.cell.pods}},
            "schedulingConstraints": {"topology": [{"key": settings.topology_key}]},
        },
    }


def _metadata(group: ExecutorGroup, settings: ClusterSettings) -> JsonObject:
    return {
        "name": object_name(group.key),
        "labels": _labels(group, settings),
        "ownerReferences": [_owner_reference(owner) for owner in group.owners],
    }


def _owner_reference(owner: AppOwner) -> JsonObject:
    """Returns a reference to one of several owners: the garbage collector deletes the object with the last of them."""
    return {
        "apiVersion": APPS.api_version,
        "kind": APPS.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": False,
    }


def _selector(group: ExecutorGroup, settings: ClusterSettings) -> dict[str, str]:
    return {INSTANCE_LABEL: settings.instance, COMPONENT_LABEL: COMPONENT, EXECUTOR_LABEL: group.key}


def _labels(group: ExecutorGroup, settings: ClusterSettings) -> dict[str, str]:
    return {
        NAME_LABEL: "cornserve",
        PART_OF_LABEL: "cornserve",
        VERSION_LABEL: settings.version,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        **_pod_labels(group, settings),
    }


def _pod_labels(group: ExecutorGroup, settings: ClusterSettings) -> dict[str, str]:
    return {**_selector(group, settings), **({CELL_LABEL: group.cell.name} if group.cell else {})}


def _deployment_spec(group: ExecutorGroup, settings: ClusterSettings, avoided: Collection[str]) -> JsonObject:
    device = group_device(group, settings)
    labels = {
        **settings.pod_labels,
        NAME_LABEL: "cornserve",
        PART_OF_LABEL: "cornserve",
        MANAGED_BY_LABEL: FIELD_MANAGER,
        **_pod_labels(group, settings),
    }
    template = merge_pod_template(render_pod(group, labels, settings), group.pod.template)
    return {
        "revisionHistoryLimit": 1,
        "progressDeadlineSeconds": settings.start_seconds + IMAGE_SECONDS,
        "selector": {"matchLabels": _selector(group, settings)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": device.max_surge, "maxUnavailable": device.max_unavailable},
        },
        "template": avoid_nodes(with_download_resources(template), avoided),
    }


def _service_spec(group: ExecutorGroup, settings: ClusterSettings) -> JsonObject:
    return {
        "clusterIP": "None",
        "selector": _selector(group, settings),
        "ports": [
            {"name": name, "port": port, "protocol": "TCP", "targetPort": port}
            for name, port in ((INVOCATION_PORT_NAME, INVOCATION_PORT), ("metrics", METRICS_PORT))
        ],
    }
