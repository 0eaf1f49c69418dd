from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cornserve.kubernetes.client import KubeClient
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.api_server_proxy import ApiServerProxy


@pytest.fixture
async def kube_client(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    """A client with the administrator's permissions in the namespace of the test."""
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="cornserve") as client:
        yield client


@pytest.fixture
async def api_server_proxy(api_server: ApiServer) -> AsyncIterator[ApiServerProxy]:
    """A proxy in front of the API server, which a test can stop and silence."""
    async with ApiServerProxy.start(api_server) as proxy:
        yield proxy


@pytest.fixture
async def proxied_client(
    api_server_proxy: ApiServerProxy, kube_namespace: str, tmp_path: Path
) -> AsyncIterator[KubeClient]:
    """A client that reaches the API server through the proxy."""
    kubeconfig = api_server_proxy.write_kubeconfig(tmp_path / "proxied-kubeconfig", kube_namespace)
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="cornserve") as client:
        yield client
