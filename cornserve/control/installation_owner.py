"""The owner of the objects that belong to an installation, not to an app of a user."""

from __future__ import annotations

from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import DEPLOYMENTS, JsonObject


async def installation_owners(client: KubeClient, settings: ClusterSettings) -> list[JsonObject]:
    """Returns a reference to the Deployment of the controllers: Kubernetes deletes objects with it after an uninstall.

    Raises `KubeApiError`.
    """
    if settings.controller_name is None:
        return []
    found = await client.get(DEPLOYMENTS, settings.controller_name)
    metadata = found["metadata"]
    return [
        {
            "apiVersion": DEPLOYMENTS.api_version,
            "kind": DEPLOYMENTS.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
    ]
