"""The objects of a gateway in a namespace of the API server, whose pods forward to ports of this machine."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.stub_kubelet import StubKubelet

ADMIN_TOKEN: Final = "admin-token-of-the-cluster"
LABELS: Final = {"app.kubernetes.io/name": "cornserve", "app.kubernetes.io/component": "gateway"}


class StubGateway:
    """Creates objects in a namespace. The node of the pods is the stub kubelet."""

    def __init__(self, api_server: ApiServer, namespace: str, kubelet: StubKubelet) -> None:
        self._api_server = api_server
        self._namespace = namespace
        self._kubelet = kubelet
        self._node = f"node-of-{namespace}"

    def install(self) -> None:
        """Creates the node, the Service and the Secret."""
        self._api_server.request("POST", "/api/v1/nodes", {"metadata": {"name": self._node}})
        endpoints = {"kubeletEndpoint": {"Port": self._kubelet.port}}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        node = self._api_server.request("GET", f"/api/v1/nodes/{self._node}")
        node["status"] |= {"addresses": addresses, "daemonEndpoints": endpoints}
        self._api_server.request("PUT", f"/api/v1/nodes/{self._node}/status", node)
        ports = [{"name": "http", "port": 80, "targetPort": "http"}]
        spec = {"selector": LABELS, "ports": ports}
        self._create("services", {"metadata": {"name": "cornserve-gateway", "labels": LABELS}, "spec": spec})
        token = b64encode(ADMIN_TOKEN.encode()).decode()
        self._create("secrets", {"metadata": {"name": "cornserve"}, "data": {"admin-token": token}})

    def add_pod(self, name: str, port: int, *, ready: bool = True, labels: dict[str, str] = LABELS) -> None:
        """Creates a running pod whose ports are `port` on this machine."""
        self._kubelet.ports[name] = port
        self._create("pods", {"metadata": {"name": name, "labels": labels}, "spec": _pod_spec(self._node)})
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        status: dict[str, Any] = {
            "phase": "Running" if ready else "Pending",
            "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [
                {
                    "name": "gateway",
                    "ready": ready,
                    "restartCount": 0,
                    "image": "localhost/none",
                    "imageID": "",
                    "state": {"running": {}} if ready else waiting,
                }
            ],
        }
        path = f"{self._path('pods')}/{name}"
        pod = self._api_server.request("GET", path)
        self._api_server.request("PUT", f"{path}/status", pod | {"status": status})

    def delete_pod(self, name: str) -> None:
        path = f"{self._path('pods')}/{name}?gracePeriodSeconds=0"
        self._api_server.request("DELETE", path)

    def _create(self, plural: str, body: Any) -> None:
        self._api_server.request("POST", self._path(plural), body)

    def _path(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/{plural}"


def _pod_spec(node: str) -> dict[str, Any]:
    token = {"secretKeyRef": {"name": "cornserve", "key": "admin-token"}}
    container = {
        "name": "gateway",
        "image": "localhost/none",
        "ports": [{"name": "http", "containerPort": 8000}],
        "env": [{"name": "CORNSERVE_ADMIN_TOKEN", "valueFrom": token}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {"nodeName": node, "automountServiceAccountToken": False, "containers": [container]}
