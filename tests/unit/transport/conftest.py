from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cornserve.pull_protocol import PullProtocol
from cornserve.transport import PeerDirectory, TensorId, Transport
from cornserve.transport.protocol import PRODUCER_CODEC
from cornserve.wire.connection import MessageConnection
from cornserve.wire.listener import ConnectionListener
from tests.credentials import CREDENTIALS

MIB = 1 << 20
REQUEST = "request-1"


class TransportCluster:
    """Creates transports that each have a listener, like separate processes."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self._directory = directory
        self._stack = stack

    async def transport(
        self,
        *,
        directory: Path | None = None,
        slab_bytes: int = 8 * MIB,
        request_bytes: int = 2 * MIB,
        cache_bytes: int = 0,
        lease_seconds: float = 10.0,
        peers: PeerDirectory | None = None,
        idle_seconds: float = 60.0,
        protocol: PullProtocol = PullProtocol.AUTO,
    ) -> TransportProcess:
        transport = Transport(
            directory or self._directory,
            CREDENTIALS,
            slab_bytes=slab_bytes,
            request_bytes=request_bytes,
            cache_bytes=cache_bytes,
            lease_seconds=lease_seconds,
            peers=peers,
            idle_seconds=idle_seconds,
            protocol=protocol,
        )
        return await self._stack.enter_async_context(_serving(transport))

    async def mute_endpoint(self) -> str:
        """Returns the endpoint of a listener that sends nothing after the preamble, like a process that hangs."""

        def create_connection() -> MessageConnection[Any, Any]:
            connection = MessageConnection(PRODUCER_CODEC, lambda message: None)
            self._stack.push_async_callback(connection.wait_closed)
            self._stack.callback(connection.abort, "the test has ended")
            return connection

        listener = ConnectionListener({PRODUCER_CODEC.preamble: create_connection}, CREDENTIALS)
        self._stack.push_async_callback(listener.close)
        return await listener.listen("127.0.0.1:0")


class TransportProcess:
    """A transport and the endpoint at which others find it."""

    def __init__(self, transport: Transport, endpoint: str) -> None:
        self.transport = transport
        self.endpoint = endpoint

    def tensor_id(self, output: str = "embeddings", *, invocation: int = 0, attempt: int = 0) -> TensorId:
        return TensorId(self.endpoint, REQUEST, invocation, attempt, output)

    @property
    def held_bytes(self) -> float:
        return slab_bytes(self.transport)["held"]


def needs_extra(protocol: PullProtocol) -> PullProtocol:
    """Skips the test if the library of the protocol is not installed."""
    if protocol is PullProtocol.UCX:
        pytest.importorskip("ucxx", exc_type=ImportError)
    return protocol


def slab_bytes(transport: Transport) -> dict[str, float]:
    return {
        sample.labels["state"]: sample.value
        for metric in transport.metrics()
        for sample in metric.samples
        if sample.name == "cornserve_transport_slab_bytes"
    }


@asynccontextmanager
async def _serving(transport: Transport) -> AsyncIterator[TransportProcess]:
    listener = ConnectionListener(await transport.start(), CREDENTIALS)
    try:
        yield TransportProcess(transport, await listener.listen("127.0.0.1:0"))
    finally:
        await listener.close()
        await transport.stop()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TransportCluster]:
    async with AsyncExitStack() as stack:
        yield TransportCluster(tmp_path, stack)


@pytest.fixture
async def two_nodes(
    cluster: TransportCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> tuple[TransportProcess, TransportProcess]:
    """Returns two transports without a common directory. The test's parameter is their protocol, by default TCP."""
    protocol = needs_extra(getattr(request, "param", PullProtocol.TCP))
    (tmp_path / "other").mkdir()
    return await cluster.transport(protocol=protocol), await cluster.transport(
        directory=tmp_path / "other", protocol=protocol
    )


by_each_protocol = pytest.mark.parametrize("two_nodes", [PullProtocol.TCP, PullProtocol.UCX], indirect=True)
