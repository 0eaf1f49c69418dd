from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cornserve.kubernetes.client import KubeClient
from tests.kubernetes.api_server import ApiServer, api_server_process, control_plane_processes
from tests.kubernetes.api_server_proxy import ApiServerProxy
from tests.kubernetes.record_resources import install_record_crds


@pytest.fixture(scope="package")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server without controllers: nothing but the test changes objects."""
    with api_server_process(tmp_path_factory.mktemp("api-server")) as server:
        yield server


@pytest.fixture(scope="package")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server with the controllers of Kubernetes."""
    with control_plane_processes(tmp_path_factory.mktemp("control-plane")) as server:
        yield server


@pytest.fixture(scope="package")
def record_crds(api_server: ApiServer) -> None:
    """Installs the CRDs of the store's tests."""
    install_record_crds(api_server)


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
