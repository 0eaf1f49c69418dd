"""The floor: bytes go from one socket to another, on an event loop. No gateway, for it reads nothing of what passes.

`python -m benchmarks.peers.raw_uvloop PORT ENGINE`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class _End(asyncio.Protocol):
    """One end of a tunnel; what comes in here goes out at the other."""

    other: _End | None = None

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own, which does not derive from it

    def join(self, other: _End) -> None:
        self.other, other.other = other, self
        other._transport.write(b"".join(self._early))

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other._transport.close()


class _Client(_End):
    def __init__(self, engine: str) -> None:
        super().__init__()
        self._engine = engine

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        host, _, port = self._engine.rpartition(":")
        _, end = await asyncio.get_running_loop().create_connection(_End, host, int(port))
        self.join(end)


async def serve(port: int, engine: str) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Client(engine), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
