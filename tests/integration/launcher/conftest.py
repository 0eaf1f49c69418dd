"""A control plane, and nodes whose pods are processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.credentials import write_secret
from tests.integration.launcher.cluster_site import ClusterSite, cluster_site
from tests.kubernetes.api_server import ApiServer, control_plane_processes
from tests.kubernetes.fake_kubelet import NodeFiles


@pytest.fixture(scope="package")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with control_plane_processes(tmp_path_factory.mktemp("control-plane")) as server:
        yield server


@pytest.fixture
def node_files(tmp_path: Path) -> NodeFiles:
    return NodeFiles(tmp_path, write_secret(tmp_path / "secret"))


@pytest.fixture
async def two_nodes(api_server: ApiServer, kubeconfig: Path, node_files: NodeFiles) -> AsyncIterator[ClusterSite]:
    """A node with one GPU and a node with two."""
    async with cluster_site(api_server, kubeconfig, node_files, gpus=(1, 2)) as site:
        yield site
