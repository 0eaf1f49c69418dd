"""The command line against pods: port-forwards through a real kubelet, and the checks of a cluster."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from typer.testing import CliRunner

from cornserve import Client
from cornserve.cli.commands import app
from cornserve.client import ClusterUnreachableError
from tests.cluster.conftest import KubernetesCluster
from tests.cluster.test_cluster import pod

MESSAGE_BYTES = 5_000_000

SERVE = f"""
mkdir -p /www/admin/v1 && cd /www/admin/v1
printf '{{"apps": [], "unreadable": [{{"name": "a", "message": "' > apps
head -c {MESSAGE_BYTES} /dev/zero | tr '\\0' x >> apps
printf '"}}]}}' >> apps
exec httpd -f -p 8000 -h /www
"""
"""Responds to `GET /admin/v1/apps` as a gateway does."""

LABELS = {
    "app.kubernetes.io/name": "cornserve",
    "app.kubernetes.io/part-of": "cornserve",
    "app.kubernetes.io/component": "gateway",
}


def gateway_pod(name: str, image: str) -> dict[str, Any]:
    manifest = pod(name, image, SERVE, volumes=[{"name": "www", "emptyDir": {}}])
    manifest["metadata"]["labels"] = LABELS
    container = manifest["spec"]["containers"][0]
    container["ports"] = [{"name": "http", "containerPort": 8000}]
    container["readinessProbe"] = {"tcpSocket": {"port": "http"}, "periodSeconds": 1, "failureThreshold": 100}
    return manifest


@pytest.fixture
def namespace(cluster: KubernetesCluster, cluster_namespace: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace with a Service and a pod in the place of a gateway."""
    if cluster.kubeconfig is not None:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    for name in ("CORNSERVE_URL", "CORNSERVE_ADMIN_TOKEN", "CORNSERVE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    metadata = {"name": "cornserve", "labels": LABELS}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": LABELS, "ports": ports},
    }
    cluster.apply(cluster_namespace, service, gateway_pod("gateway-0", cluster.busybox_image))
    wait_until_ready(cluster, cluster_namespace, "gateway-0")
    return cluster_namespace


def wait_until_ready(cluster: KubernetesCluster, namespace: str, name: str) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", f"--namespace={namespace}", "--timeout=180s")


def test_large_and_concurrent_responses_pass_through_the_kubelet(cluster: KubernetesCluster, namespace: str) -> None:
    with Client.for_cluster(cluster.context, namespace) as client, ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(lambda _: client.unreadable_apps(), range(8)))

    assert [len(apps[0].message) for apps in responses] == [MESSAGE_BYTES] * 8


def test_a_client_goes_on_with_another_pod(cluster: KubernetesCluster, namespace: str) -> None:
    with Client.for_cluster(cluster.context, namespace) as client:
        assert client.apps() == []
        cluster.apply(namespace, gateway_pod("gateway-1", cluster.busybox_image))
        wait_until_ready(cluster, namespace, "gateway-1")
        cluster.kubectl("delete", "pod", "gateway-0", f"--namespace={namespace}", "--grace-period=0", "--force")

        assert client.apps() == []

        cluster.kubectl("delete", "pod", "gateway-1", f"--namespace={namespace}", "--grace-period=0", "--force")
        with pytest.raises(ClusterUnreachableError, match="is not ready"):
            client.apps()


def test_a_pod_without_the_port_is_reported(cluster: KubernetesCluster, namespace: str) -> None:
    silent = gateway_pod("silent", cluster.busybox_image)
    silent["metadata"]["labels"] = {}
    silent["spec"]["containers"][0] |= {"command": ["sleep", "1000"], "readinessProbe": {"exec": {"command": ["true"]}}}
    cluster.apply(namespace, silent)
    wait_until_ready(cluster, namespace, "silent")
    cluster.kubectl("label", "pod/silent", *(f"{name}={value}" for name, value in LABELS.items()), f"-n{namespace}")
    cluster.kubectl("delete", "pod", "gateway-0", f"--namespace={namespace}", "--grace-period=0", "--force")

    with (
        Client.for_cluster(cluster.context, namespace) as client,
        pytest.raises(ClusterUnreachableError, match="cannot be reached"),
    ):
        client.apps()


def test_doctor_reports_the_pods_and_what_is_missing(cluster: KubernetesCluster, namespace: str) -> None:
    arguments = ["--context", cluster.context, "--namespace", namespace, "doctor", "--json"]

    result = CliRunner(env=dict(os.environ)).invoke(app, arguments)

    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert (checks["Kubernetes"]["ok"], checks["permissions"]["ok"]) == (True, True)
    assert checks["gateway"]["found"] == "1 of 1 pods ready"
    assert not checks["controller"]["ok"]
    assert "helm install" in checks["controller"]["remedy"]
