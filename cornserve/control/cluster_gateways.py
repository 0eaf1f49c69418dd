"""The addresses of the gateways of an installation in Kubernetes."""

from __future__ import annotations

from typing import Final

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError
from cornserve.kubernetes.pods import is_pod_ready, pod_endpoint
from cornserve.kubernetes.resources import PODS
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, INSTANCE_LABEL

GATEWAY_PORT: Final = 8000


async def cluster_gateways(client: KubeClient, instance: str) -> list[str]:
    """Returns the URLs of the ready gateway pods of an installation. Raises OSError if they cannot be listed."""
    try:
        selector = f"{INSTANCE_LABEL}={instance},{COMPONENT_LABEL}=gateway"
        pods = await client.list(PODS, label_selector=selector, resource_version="0")
    except KubeApiError as error:
        raise OSError(str(error)) from error
    return [f"http://{pod_endpoint(pod['status']['podIP'], GATEWAY_PORT)}" for pod in pods.items if is_pod_ready(pod)]
