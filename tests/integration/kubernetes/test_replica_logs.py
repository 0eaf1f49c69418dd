"""The logs of replicas, which the API server reads from the kubelets."""

from __future__ import annotations

from cornserve.control.launcher.kubernetes.logs import ClusterReplicaLogs
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import PODS
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, INSTANCE_LABEL
from tests.free_ports import free_port
from tests.kubernetes.api_server import ApiServer


async def test_a_log_whose_node_does_not_respond_has_the_reason(api_server: ApiServer, kube_client: KubeClient) -> None:
    node = f"node-of-{kube_client.namespace}"
    api_server.request("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": free_port()}},
    }
    api_server.request("PUT", f"/api/v1/nodes/{node}/status", {"metadata": {"name": node}, "status": status})
    labels = {INSTANCE_LABEL: "cornserve", COMPONENT_LABEL: "executor"}
    spec = {
        "nodeName": node,
        "containers": [
            {
                "name": "executor",
                "image": "none",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    await kube_client.create(PODS, {"metadata": {"name": "echo", "labels": labels}, "spec": spec})

    [line] = await ClusterReplicaLogs(kube_client, "cornserve")("echo", 10)

    assert line.startswith("the log cannot be read: ")
    assert "connection refused" in line
