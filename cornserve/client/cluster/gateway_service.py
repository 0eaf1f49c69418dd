"""Finds the gateway in a namespace: its Service, its pods, and the Secret with its admin token."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass

from cornserve.access import ADMIN_TOKEN
from cornserve.client.errors import ClusterError, ClusterUnreachableError
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeForbiddenError, KubeNotFoundError
from cornserve.kubernetes.pods import is_pod_ready, pod_problem
from cornserve.kubernetes.resources import PODS, SECRETS, SERVICES, JsonObject
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, NAME_LABEL

SELECTOR = f"{NAME_LABEL}=cornserve,{COMPONENT_LABEL}=gateway"
"""The labels of the gateway's Service."""

PORT = "http"
"""The name of the Service's port."""


@dataclass(frozen=True, slots=True)
class GatewayPod:
    name: str
    port: int
    object: JsonObject


class GatewayService:
    """The Service of the gateways of an installation.

    Args:
        place: the cluster and the namespace in messages.
    """

    def __init__(self, client: KubeClient, place: str, service: JsonObject) -> None:
        self._client = client
        self._place = place
        self._service = service

    @classmethod
    async def find(cls, client: KubeClient, place: str) -> GatewayService:
        """Raises `ClusterError` if the namespace has no gateway."""
        listing = await client.list(SERVICES, label_selector=SELECTOR)
        if not listing.items:
            raise ClusterError(
                f"no gateway is installed in {place}: install Cornserve there (`helm install cornserve …`), or "
                "give the namespace of an installation with --namespace"
            )
        return cls(client, place, min(listing.items, key=lambda service: str(service["metadata"]["name"])))

    async def ready_pod(self) -> GatewayPod:
        """Returns a pod that is ready. Raises `ClusterUnreachableError` if none is."""
        selector = ",".join(f"{key}={value}" for key, value in self._service["spec"]["selector"].items())
        pods = (await self._client.list(PODS, label_selector=selector)).items
        for pod in pods:
            if is_pod_ready(pod):
                return GatewayPod(pod["metadata"]["name"], _target_port(self._service, pod), pod)
        name = self._service["metadata"]["name"]
        problems = [f"{pod['metadata']['name']}: {pod_problem(pod)}" for pod in pods]
        raise ClusterUnreachableError(
            f"the gateway in {self._place} is not ready: {'; '.join(problems) or f'the Service {name} has no pods'}: "
            "retry, or see `cornserve doctor`"
        )

    async def admin_token(self, pod: GatewayPod) -> str | None:
        """Returns the token in the Secret that the pod refers to, or None if it cannot be read."""
        for container in pod.object["spec"]["containers"]:
            for variable in container.get("env") or []:
                reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
                if variable["name"] == ADMIN_TOKEN and reference:
                    return await self._secret(reference["name"], reference["key"])
        return None

    async def _secret(self, name: str, key: str) -> str | None:
        with suppress(KubeForbiddenError, KubeNotFoundError, KeyError, ValueError):
            secret = await self._client.get(SECRETS, name)
            return base64.b64decode(secret["data"][key]).decode("ascii").strip()
        return None


def _target_port(service: JsonObject, pod: JsonObject) -> int:
    ports = service["spec"]["ports"]
    port = next((port for port in ports if port.get("name") == PORT), ports[0])
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for declared in container.get("ports") or []:
            if declared.get("name") == target:
                return int(declared["containerPort"])
    raise ClusterError(
        f"the pod {pod['metadata']['name']} is selected by the Service {service['metadata']['name']}, but has no port "
        f"named {target!r}: give it the port, or other labels"
    )
