"""Connections to ports of pods through a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cornserve.kubernetes.configuration import load_access
from cornserve.kubernetes.errors import KubeForbiddenError, KubeUnauthorizedError
from cornserve.kubernetes.port_forward import PodPortError, open_pod_port
from cornserve.kubernetes.resources import PODS
from cornserve.kubernetes.transport import KubeTransport
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.stub_gateway import StubGateway
from tests.kubernetes.stub_kubelet import StubKubelet, stub_kubelet


@pytest.fixture
def kubelet(api_server: ApiServer) -> Iterator[StubKubelet]:
    with stub_kubelet(api_server.files.directory) as kubelet:
        yield kubelet


@pytest.fixture
def path(api_server: ApiServer, kube_namespace: str, kubelet: StubKubelet) -> str:
    """The path of `portforward` of a pod, whose port nothing listens on."""
    gateway = StubGateway(api_server, kube_namespace, kubelet)
    gateway.install()
    gateway.add_pod("gateway-0", 1)
    return PODS.path(kube_namespace, "gateway-0", "portforward")


def write_kubeconfig(api_server: ApiServer, directory: Path, token: str) -> Path:
    api_server.files.write_kubeconfig(file := directory / "other-kubeconfig", token)
    return file


async def test_refused_credentials_are_read_again(
    api_server: ApiServer, path: str, kubeconfig: Path, tmp_path: Path
) -> None:
    expired = await load_access(kubeconfig=write_kubeconfig(api_server, tmp_path, "expired"))
    transport = KubeTransport(expired, lambda: load_access(kubeconfig=kubeconfig))

    async with open_pod_port(transport, path, 8000) as connection:
        with pytest.raises(PodPortError, match="connection refused") as refusal:
            await connection.receive()

    assert refusal.value.is_refused
    await transport.close()


async def test_a_missing_permission_names_the_path(
    api_server: ApiServer, kube_namespace: str, path: str, tmp_path: Path
) -> None:
    token = await asyncio.to_thread(api_server.service_account_token, kube_namespace, "default")
    load = partial(load_access, kubeconfig=write_kubeconfig(api_server, tmp_path, token))
    transport = KubeTransport(await load(), load)

    with pytest.raises(
        KubeForbiddenError, match=r"refuses .*/pods/gateway-0/portforward\?ports=8000 with HTTP status 403"
    ):
        async with open_pod_port(transport, path, 8000):
            pass

    await transport.close()


async def test_credentials_that_stay_refused_raise_an_error(api_server: ApiServer, path: str, tmp_path: Path) -> None:
    load = partial(load_access, kubeconfig=write_kubeconfig(api_server, tmp_path, "expired"))
    transport = KubeTransport(await load(), load)

    with pytest.raises(KubeUnauthorizedError):
        async with open_pod_port(transport, path, 8000):
            pass

    await transport.close()
