"""The lower bound: forwards bytes from one socket to another on an event loop, without parsing them.

`python -m benchmarks.peers.raw_uvloop PORT ENGINE`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class _TunnelEnd(asyncio.Protocol):
    """One end of a tunnel. Forwards received data to the other end."""

    other: _TunnelEnd | None = None

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._unsent: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from asyncio's

    def join(self, other: _TunnelEnd) -> None:
        self.other, other.other = other, self
        other._transport.write(b"".join(self._unsent))

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._unsent.append(data)
        else:
            self.other._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other._transport.close()


class _ClientEnd(_TunnelEnd):
    def __init__(self, engine: str) -> None:
        super().__init__()
        self._engine = engine

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        host, _, port = self._engine.rpartition(":")
        _, end = await asyncio.get_running_loop().create_connection(_TunnelEnd, host, int(port))
        self.join(end)


async def serve(port: int, engine: str) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _ClientEnd(engine), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
