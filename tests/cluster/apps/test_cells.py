"""Cells on real nodes: a launcher outside of the cluster, whose pods request a resource that only this test offers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from cornserve.control.launcher.base import ExecutorCell, ExecutorGroup, Replica
from cornserve.control.launcher.kubernetes import ClusterSettings, KubernetesLauncher
from cornserve.control.launcher.kubernetes.names import FIELD_MANAGER
from cornserve.kubernetes.client import KubeClient
from cornserve_echo.task import EchoTask
from tests.cluster.conftest import KubernetesCluster
from tests.credentials import CREDENTIALS
from tests.integration.launcher.conformance import none, observed, ready, ready_groups

CELL = ExecutorCell("cell-a", pods=2)


def group(prefix: str, gpus: int = 1, cell: ExecutorCell | None = None) -> ExecutorGroup:
    spec = EchoTask(prefix=prefix).executor_spec().model_copy(update={"gpus": gpus})
    return ExecutorGroup(spec, 1, cell=cell)


def offer(cluster: KubernetesCluster, node: str, resource: str, count: int | None) -> None:
    amount = {resource: None if count is None else str(count)}
    patch = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
    cluster.kubectl("patch", f"node/{node}", "--subresource=status", "--type=merge", f"--patch={patch}")


@pytest.fixture
def gpu_resource(local_cluster: KubernetesCluster, cluster_namespace: str) -> Iterator[str]:
    """A resource of which one node offers one unit and another node two."""
    nodes = [node["metadata"]["name"] for node in local_cluster.get("nodes")["items"]]
    resource = f"tests.cornserve.ai/{cluster_namespace}"
    for count, node in enumerate(nodes, start=1):
        offer(local_cluster, node, resource, count)
    yield resource
    for node in nodes:
        offer(local_cluster, node, resource, None)


@pytest.fixture
def settings(
    local_cluster: KubernetesCluster, cluster_namespace: str, gpu_resource: str, echo_tag: str
) -> ClusterSettings:
    secret = f"--from-literal=secret={os.urandom(32).hex()}"
    local_cluster.kubectl("create", "secret", "generic", "cornserve", f"--namespace={cluster_namespace}", secret)
    device = {"image": f"localhost/cornserve-echo:{echo_tag}"}
    content = {
        "instance": "test",
        "cpu": device,
        "gpu": device,
        "gpuResource": gpu_resource,
        "secretName": "cornserve",
        "cellPatienceSeconds": 2,
        "drainSeconds": 5,
    }
    return ClusterSettings.model_validate(content)


@pytest.mark.timeout(300)
async def test_a_half_free_node_never_strands_a_cell(
    local_cluster: KubernetesCluster, cluster_namespace: str, settings: ClusterSettings
) -> None:
    def is_released(replicas: list[Replica]) -> bool:
        own = [replica.reason for replica in replicas if replica.group in keys]
        return own == ["CellUnplaceable"] * 2

    connecting = KubeClient.connect(
        context=local_cluster.context,
        kubeconfig=local_cluster.kubeconfig,
        namespace=cluster_namespace,
        field_manager=FIELD_MANAGER,
    )
    async with connecting as client:
        launcher = KubernetesLauncher(client, settings, lambda: CREDENTIALS)
        await launcher.start()
        blocker, other = group("blocker", gpus=2), group("other")
        await launcher.apply(blocker)
        await observed(launcher, ready(1))
        members = [group("one", cell=CELL), group("two", cell=CELL)]
        keys = {member.key for member in members}
        for member in members:
            await launcher.apply(member)
        await observed(launcher, is_released)
        await launcher.apply(other)  # The half-free node is available to others.
        await observed(launcher, lambda replicas: other.key in ready_groups(replicas))
        await launcher.delete(blocker.key)
        replicas = await observed(launcher, lambda replicas: ready_groups(replicas) >= keys)
        pods = [local_cluster.get(f"pod/{each.id}", f"--namespace={cluster_namespace}") for each in replicas]
        nodes = {pod["spec"]["nodeName"] for pod, each in zip(pods, replicas, strict=True) if each.group in keys}
        assert len(nodes) == 1
        await launcher.prune(set())
        await observed(launcher, none)
        await launcher.close()
