"""The cluster itself: nodes, Pod Security, DNS, Services, shared memory and GPUs."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts.cluster.cluster import advertise_gpus, is_up, start_process, stop_process, up
from scripts.cluster.machines import CONTROL_PLANE, existing_nodes, node
from scripts.cluster.shell import wait_until
from tests.cluster.conftest import KubernetesCluster
from tests.waiting import until


def pod(name: str, image: str, script: str, **spec: Any) -> dict[str, Any]:
    """Returns a pod that runs a shell script under Pod Security `restricted`."""
    volumes = spec.get("volumes", [])
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes],
        "resources": spec.pop("resources", {}),
    }
    security = {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "securityContext": security,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


def wait_for_phase(cluster: KubernetesCluster, namespace: str, name: str, phase: str) -> None:
    condition = f"--for=jsonpath={{.status.phase}}={phase}"
    cluster.kubectl("wait", condition, f"pod/{name}", f"--namespace={namespace}", "--timeout=180s")


def output(cluster: KubernetesCluster, namespace: str, name: str) -> str:
    """Returns the output of a pod that ends successfully."""
    wait_for_phase(cluster, namespace, name, "Succeeded")
    return cluster.kubectl("logs", name, f"--namespace={namespace}")


def start_web_server(cluster: KubernetesCluster, namespace: str, **service_spec: Any) -> Any:
    """Starts a web server and its Service; returns the spec of the Service when the server is ready."""
    server = pod("web", cluster.busybox_image, "echo served > /tmp/index.html; exec httpd -f -p 8080 -h /tmp")
    server["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"port": 8080}, "periodSeconds": 1}
    cluster.apply(namespace, service(**service_spec), server)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", f"--namespace={namespace}", "--timeout=180s")
    return cluster.get("service", "web", f"--namespace={namespace}")["spec"]


def is_served(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.read() == b"served\n")
    except OSError:
        return False


def service(**spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": ports, **spec},
    }


def test_all_nodes_are_ready(cluster: KubernetesCluster) -> None:
    nodes = cluster.get("nodes")["items"]
    ready = [
        condition["status"]
        for node in nodes
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready"
    ]

    assert len(nodes) >= 1
    assert ready == ["True"] * len(nodes)


def test_a_pod_reaches_a_service_by_its_name(cluster: KubernetesCluster, cluster_namespace: str) -> None:
    start_web_server(cluster, cluster_namespace)
    name = f"web.{cluster_namespace}.svc.cluster.local"
    script = f"until printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {name} 80; do usleep 50000; done"

    cluster.apply(cluster_namespace, pod("client", cluster.busybox_image, script))

    assert output(cluster, cluster_namespace, "client").endswith("\n\nserved\n")


def test_a_pod_that_is_not_restricted_is_refused(cluster: KubernetesCluster, cluster_namespace: str) -> None:
    root = pod("root", cluster.busybox_image, "id", hostNetwork=True)

    with pytest.raises(AssertionError, match="violates PodSecurity"):
        cluster.apply(cluster_namespace, root)


async def test_this_machine_reaches_a_service_on_each_node(
    local_cluster: KubernetesCluster, cluster_namespace: str
) -> None:
    port = start_web_server(local_cluster, cluster_namespace, type="NodePort")["ports"][0]["nodePort"]

    for served_node in existing_nodes():
        await until(partial(is_served, f"http://{served_node.address}:{port}"))


def test_another_checkout_uses_a_cluster_that_is_up(
    local_cluster: KubernetesCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.cluster.cluster.KUBECONFIG", tmp_path / "cluster" / "kubeconfig")

    up([node(1)])

    other = KubernetesCluster(tmp_path / "cluster" / "kubeconfig", "cornserve-test")
    assert other.get("namespace", "default") == local_cluster.get("namespace", "default")


@pytest.fixture
def api_server_stopper(local_cluster: KubernetesCluster) -> Iterator[Callable[[], None]]:
    """Stops the API server; it is started again after the test."""
    yield lambda: stop_process(CONTROL_PLANE, "kube-apiserver")
    start_process(CONTROL_PLANE, "kube-apiserver")
    wait_until(is_up, "the start of the API server")


@pytest.mark.chaos
async def test_services_are_reached_while_the_api_server_is_away(
    local_cluster: KubernetesCluster, cluster_namespace: str, api_server_stopper: Callable[[], None]
) -> None:
    port = start_web_server(local_cluster, cluster_namespace, type="NodePort")["ports"][0]["nodePort"]
    url = f"http://{existing_nodes()[0].address}:{port}"
    await until(partial(is_served, url))

    api_server_stopper()
    await until(lambda: not is_up())

    assert is_served(url)


@pytest.fixture
def shared_memory(local_cluster: KubernetesCluster, cluster_namespace: str) -> Iterator[str]:
    """The name of a claim on shared memory of the first node."""
    name = f"shared-memory-{cluster_namespace}"
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [existing_nodes()[0].name]}
    size = {"storage": "1Gi"}
    volume = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "local": {"path": "/dev/shm/cornserve"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
    }
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": name, "resources": {"requests": size}}
    local_cluster.apply(
        cluster_namespace,
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shm"}, "spec": claim},
    )
    yield "shm"
    local_cluster.kubectl("delete", "persistentvolume", name, "--wait=false")


def test_pods_of_one_node_share_memory_through_a_local_volume(
    local_cluster: KubernetesCluster, cluster_namespace: str, shared_memory: str
) -> None:
    volumes = [{"name": "shm", "persistentVolumeClaim": {"claimName": shared_memory}}]
    file = f"/shm/{cluster_namespace}"
    image = local_cluster.busybox_image
    writer = pod("writer", image, f"echo written > {file}; df -T /shm", volumes=volumes)
    reader = pod("reader", image, f"until rm {file}; do usleep 50000; done 2> /dev/null; echo found", volumes=volumes)

    local_cluster.apply(cluster_namespace, reader)
    wait_for_phase(local_cluster, cluster_namespace, "reader", "Running")
    local_cluster.apply(cluster_namespace, writer)

    assert "tmpfs" in output(local_cluster, cluster_namespace, "writer")
    assert output(local_cluster, cluster_namespace, "reader") == "found\n"


@pytest.fixture
def gpu_node(local_cluster: KubernetesCluster) -> Iterator[str]:
    """The name of a node that offers one GPU."""
    last = existing_nodes()[-1]
    advertise_gpus(last, 1)
    yield last.name
    advertise_gpus(last, 0)


def test_pods_that_request_gpus_run_where_nodes_offer_them(
    local_cluster: KubernetesCluster, cluster_namespace: str, gpu_node: str
) -> None:
    def gpu_pod(name: str) -> dict[str, Any]:
        resources = {"limits": {"nvidia.com/gpu": 1}}
        selector = {"kubernetes.io/hostname": gpu_node}
        return pod(name, local_cluster.busybox_image, "sleep infinity", resources=resources, nodeSelector=selector)

    local_cluster.apply(cluster_namespace, gpu_pod("first"))
    wait_for_phase(local_cluster, cluster_namespace, "first", "Running")
    local_cluster.apply(cluster_namespace, gpu_pod("second"))

    local_cluster.kubectl(
        "wait", "--for=condition=PodScheduled=False", "pod/second", f"--namespace={cluster_namespace}", "--timeout=180s"
    )
