from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cornserve.transport import TensorId, Transport
from cornserve.transport.heartbeat import PRODUCER_CODEC
from cornserve.wire.connection import MessageConnection
from cornserve.wire.listener import MessageListener

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

    async def mute_endpoint(self) -> str:
        """Of a process that stands still: somebody takes connections, and says no more than the greeting."""

        def answer() -> MessageConnection[Any, Any]:
            line = MessageConnection(PRODUCER_CODEC, lambda message: None)
            self._stack.push_async_callback(line.wait_closed)
            self._stack.callback(line.abort, "the test is over")
            return line

        reception = MessageListener({PRODUCER_CODEC.preamble: answer})
        self._stack.callback(reception.close)
        return await reception.listen("127.0.0.1:0")


class Process:
    def __init__(self, transport: Transport, endpoint: str) -> None:
        self.transport = transport
        self.endpoint = endpoint

    def source(self, output: str = "embeddings", *, invocation: int = 0, attempt: int = 0) -> TensorId:
        return TensorId(self.endpoint, REQUEST, invocation, attempt, output)

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
    reception = MessageListener(await transport.start("127.0.0.1"))
    try:
        yield Process(transport, await reception.listen("127.0.0.1:0"))
    finally:
        reception.close()
        await transport.stop()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(tmp_path, stack)
