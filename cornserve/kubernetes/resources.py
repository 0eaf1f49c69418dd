"""The types of Kubernetes resources that Cornserve uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

JsonObject = dict[str, Any]
"""A Kubernetes object: the decoded JSON, without typed models, which drop unknown fields."""

GROUP = "cornserve.ai"
VERSION = "v1alpha1"


@dataclass(frozen=True, slots=True)
class ResourceType:
    group: str
    """The API group; empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """The name as in kubectl: `apps.cornserve.ai`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str | None = None, subresource: str | None = None) -> str:
        """Returns the path of the collection, or of one object."""
        prefix = f"{group_path(self.api_version)}/namespaces/{quote(namespace, safe='')}/"
        path = (prefix if self.namespaced else f"{group_path(self.api_version)}/") + self.plural
        parts = [path, *(quote(part, safe="") for part in (name, subresource) if part is not None)]
        return "/".join(parts)


def group_path(group_version: str) -> str:
    """Returns the path of an API group, such as `/apis/apps/v1`, or of the core group, `/api/v1`."""
    return f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"


APPS = ResourceType(GROUP, VERSION, "apps", "App")
APP_ROUTES = ResourceType(GROUP, VERSION, "approutes", "AppRoute")

CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap")
EVENTS = ResourceType("", "v1", "events", "Event")
NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = ResourceType("", "v1", "nodes", "Node", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = ResourceType("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PODS = ResourceType("", "v1", "pods", "Pod")
SECRETS = ResourceType("", "v1", "secrets", "Secret")
SERVICES = ResourceType("", "v1", "services", "Service")

DEPLOYMENTS = ResourceType("apps", "v1", "deployments", "Deployment")
ENDPOINT_SLICES = ResourceType("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
JOBS = ResourceType("batch", "v1", "jobs", "Job")
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")
POD_DISRUPTION_BUDGETS = ResourceType("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
POD_GROUPS = ResourceType("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
STORAGE_CLASSES = ResourceType("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
SELF_SUBJECT_ACCESS_REVIEWS = ResourceType(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
