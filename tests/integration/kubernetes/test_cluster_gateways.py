"""The controller finds the gateways whose arrivals it reads."""

from __future__ import annotations

from cornserve.control.cluster_gateways import cluster_gateways
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import PODS
from tests.waiting import until


async def create_pod(client: KubeClient, name: str, component: str, address: str, *, ready: bool = True) -> None:
    labels = {"app.kubernetes.io/instance": "cornserve", "app.kubernetes.io/component": component}
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    settings = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "securityContext": settings,
            "containers": [{"name": "gateway", "image": "example", "securityContext": restricted}],
        },
    }
    created = await client.create(PODS, pod)
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
    await client.replace(PODS, {**created, "status": status}, "status")


async def test_the_gateways_are_the_ready_pods_of_the_installation(kube_client: KubeClient) -> None:
    assert await cluster_gateways(kube_client, "cornserve") == []
    await create_pod(kube_client, "a", "gateway", "10.0.0.1")
    await create_pod(kube_client, "b", "gateway", "fd00::2")
    await create_pod(kube_client, "starting", "gateway", "10.0.0.3", ready=False)
    await create_pod(kube_client, "controller", "controller", "10.0.0.4")

    expected = ["http://10.0.0.1:8000", "http://[fd00::2]:8000"]

    async def are_found() -> bool:
        return sorted(await cluster_gateways(kube_client, "cornserve")) == expected

    await until(are_found)
    assert await cluster_gateways(kube_client, "another") == []
