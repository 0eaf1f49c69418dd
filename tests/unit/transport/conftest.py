from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from cornserve.transport import Source, Transport

MIB = 1 << 20
REQUEST = "request-1"


class Site:
    """Transports that each have a server, as if they were processes."""

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
    ) -> Process:
        transport = Transport(
            directory or self._directory,
            slab_bytes=slab_bytes,
            request_bytes=request_bytes,
            cache_bytes=cache_bytes,
            lease_seconds=lease_seconds,
        )
        return await self._stack.enter_async_context(_serving(transport))


class Process:
    def __init__(self, transport: Transport, server: grpc.aio.Server, port: int) -> None:
        self.transport = transport
        self.server = server
        self.endpoint = f"127.0.0.1:{port}"

    def source(self, output: str = "embeddings", *, invocation: int = 0, attempt: int = 0) -> Source:
        return Source(self.endpoint, REQUEST, invocation, attempt, output)

    @property
    def held_bytes(self) -> float:
        return slab_bytes(self.transport)["held"]


def slab_bytes(transport: Transport) -> dict[str, float]:
    return {
        sample.labels["state"]: sample.value
        for metric in transport.metrics()
        for sample in metric.samples
        if sample.name == "cornserve_transport_slab_bytes"
    }


@asynccontextmanager
async def _serving(transport: Transport) -> AsyncIterator[Process]:
    server = grpc.aio.server(options=[("grpc.http2.max_ping_strikes", 0)])
    await transport.start(server, "127.0.0.1")
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Process(transport, server, port)
    finally:
        await transport.stop()
        await server.stop(grace=None)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(tmp_path, stack)
