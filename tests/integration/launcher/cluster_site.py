"""A namespace with Kubernetes launchers for the conformance tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.kubernetes import ClusterSettings, KubernetesLauncher
from cornserve.control.launcher.kubernetes.names import FIELD_MANAGER
from cornserve.control.launcher.kubernetes.pod_observation import parse_replica_id
from cornserve.kubernetes.client import KubeClient
from tests.credentials import CREDENTIALS
from tests.integration.launcher.conformance import none, observed
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fake_kubelet import FakeKubelet, NodeFiles

CAPACITY = {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}


def cluster_settings(node: str, **changes: object) -> ClusterSettings:
    device = {"image": "localhost/cornserve-echo:dev", "nodeSelector": {"kubernetes.io/hostname": node}}
    settings = {
        "instance": "test",
        "cpu": device,
        "gpu": device,
        "secretName": "cornserve",
        "drainSeconds": 20,
        "peerNetworks": ["127.0.0.0/8"],
        "limits": ["slab-mib=64"],
    }
    return ClusterSettings.model_validate(settings | changes)


@dataclass(frozen=True)
class ClusterSite:
    client: KubeClient
    kubelet: FakeKubelet
    settings: ClusterSettings

    @asynccontextmanager
    async def open(self) -> AsyncIterator[KubernetesLauncher]:
        launcher = KubernetesLauncher(self.client, self.settings, lambda: CREDENTIALS)
        await launcher.start()
        try:
            yield launcher
        finally:
            await launcher.close()

    async def kill(self, replica: ReplicaId) -> None:
        self.kubelet.kill(parse_replica_id(replica)[0])

    async def clear(self) -> None:
        async with self.open() as launcher:
            await launcher.prune(set())
            await observed(launcher, none)


@asynccontextmanager
async def cluster_site(server: ApiServer, kubeconfig: Path, files: NodeFiles) -> AsyncIterator[ClusterSite]:
    """Yields the namespace of the kubeconfig with its own node."""
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager=FIELD_MANAGER) as client:
        node = f"node-{client.namespace}"
        kubelet = FakeKubelet(server, client, node, files)
        async with kubelet.running(CAPACITY):
            site = ClusterSite(client, kubelet, cluster_settings(node))
            try:
                yield site
            finally:
                await site.clear()
