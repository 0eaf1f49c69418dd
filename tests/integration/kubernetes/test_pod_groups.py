"""A cluster without PodGroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.control.launcher.base import ExecutorCell, ExecutorGroup, GroupRefusedError
from cornserve.control.launcher.kubernetes import KubernetesLauncher
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import DEPLOYMENTS
from tests.credentials import CREDENTIALS
from tests.integration.launcher.cluster_site import cluster_settings
from tests.integration.launcher.conformance import ECHO


async def test_a_cell_that_needs_a_pod_group_is_refused(kubeconfig: Path) -> None:
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="test") as client:
        launcher = KubernetesLauncher(
            client, cluster_settings(client.namespace, cellPlacement="PodGroup"), lambda: CREDENTIALS
        )
        await launcher.start()
        with pytest.raises(GroupRefusedError, match=r"this cluster has no PodGroups of scheduling\.k8s\.io/v1alpha2"):
            await launcher.apply(ExecutorGroup(ECHO, 1, cell=ExecutorCell("a", pods=1)))
        assert (await client.list(DEPLOYMENTS)).items == []
        await launcher.close()
