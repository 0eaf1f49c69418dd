"""The launcher of Kubernetes on a real control plane, with a node whose pods are processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ExecutorGroup, Launcher
from tests.credentials import write_secret
from tests.integration.launcher.cluster_site import ClusterSite, cluster_site
from tests.integration.launcher.conformance import BROKEN, LauncherConformance, failed, ids, observed, started
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fake_kubelet import NodeFiles


@pytest.fixture(scope="module")
def api_server(control_plane: ApiServer) -> ApiServer:
    return control_plane


@pytest.fixture
async def site(api_server: ApiServer, kubeconfig: Path, tmp_path: Path) -> AsyncIterator[ClusterSite]:
    files = NodeFiles(tmp_path, write_secret(tmp_path / "secret"))
    async with cluster_site(api_server, kubeconfig, files) as site:
        yield site


class TestConformance(LauncherConformance):
    async def test_consecutive_failures_are_counted_and_their_logs_kept(self, launcher: Launcher) -> None:
        """Kubernetes keeps the logs of the last two runs only."""
        await launcher.apply(ExecutorGroup(BROKEN, 1))
        [second] = await observed(launcher, lambda replicas: failed(replicas) and replicas[0].failures == 2)
        [third] = await observed(launcher, lambda replicas: failed(replicas) and replicas[0].failures == 3)
        assert third.id != second.id
        assert "there are no words" in "\n".join(await launcher.logs(second.id, 100))

    async def test_a_group_that_is_applied_while_it_drains_gets_new_replicas(self, launcher: Launcher) -> None:
        """A pod that Kubernetes has not begun to end yet stays."""
        before = await started(launcher)
        await launcher.delete(before[0].group)
        await observed(launcher, lambda replicas: not replicas or replicas[0].state is ReplicaState.DRAINING)
        assert not ids(await started(launcher)) & ids(before)
