"""A namespace with Kubernetes launchers for the conformance tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from unittest.mock import patch

from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.kubernetes import ClusterSettings, KubernetesLauncher, missing_endpoints
from cornserve.control.launcher.kubernetes.names import FIELD_MANAGER
from cornserve.control.launcher.kubernetes.pod_observation import parse_replica_id
from cornserve.kubernetes.client import KubeClient
from tests.credentials import CREDENTIALS
from tests.integration.launcher.conformance import none, observed
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fake_kubelet import FakeKubelet, NodeFiles

NAMESPACE_LABEL = "tests/namespace"
"""The label of nodes that run the pods of one test only."""


def cluster_settings(namespace: str, **changes: object) -> ClusterSettings:
    device = {"image": "localhost/cornserve-echo:dev", "nodeSelector": {NAMESPACE_LABEL: namespace}}
    settings = {
        "instance": "test",
        "cpu": device,
        "gpu": device,
        "secretName": "cornserve",
        "drainSeconds": 20,
        "cellPatienceSeconds": 0.5,
        "peerNetworks": ["127.0.0.0/8"],
        "limits": ["slab-mib=64"],
    }
    return ClusterSettings.model_validate(settings | changes)


@dataclass(frozen=True)
class ClusterSite:
    server: ApiServer
    client: KubeClient
    kubelets: list[FakeKubelet]
    settings: ClusterSettings

    @asynccontextmanager
    async def open(self, **changes: object) -> AsyncIterator[KubernetesLauncher]:
        """Starts a launcher, by default with the settings of the site."""
        settings = cluster_settings(self.client.namespace, **changes) if changes else self.settings
        launcher = KubernetesLauncher(self.client, settings, lambda: CREDENTIALS)
        await launcher.start()
        try:
            yield launcher
        finally:
            await launcher.close()

    async def kill(self, replica: ReplicaId) -> None:
        for kubelet in self.kubelets:
            kubelet.kill(parse_replica_id(replica)[0])

    async def clear(self) -> None:
        async with self.open() as launcher:
            await launcher.prune(set())
            await observed(launcher, none)


@asynccontextmanager
async def cluster_site(
    server: ApiServer, kubeconfig: Path, files: NodeFiles, gpus: Sequence[int] = (8,)
) -> AsyncIterator[ClusterSite]:
    """Yields the namespace of the kubeconfig with its own nodes, one for each number of GPUs."""
    async with (
        KubeClient.connect(kubeconfig=kubeconfig, field_manager=FIELD_MANAGER) as client,
        AsyncExitStack() as stack,
    ):
        # EndpointSlices cannot contain the loopback addresses of the pods.
        stack.enter_context(patch.object(missing_endpoints, "PATIENCE_SECONDS", inf))
        kubelets = []
        for number, count in enumerate(gpus, start=1):
            name, labels = f"node-{number}-{client.namespace}", {NAMESPACE_LABEL: client.namespace}
            kubelets.append(FakeKubelet(server, client, name, files, labels))
            capacity = {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(count)}
            await stack.enter_async_context(kubelets[-1].running(capacity))
        site = ClusterSite(server, client, kubelets, cluster_settings(client.namespace))
        try:
            yield site
        finally:
            await site.clear()
