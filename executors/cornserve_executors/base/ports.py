"""Where an executor listens: at gRPC's port, which is its endpoint, and at the one after it, for invocations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc


@asynccontextmanager
async def listening(
    server: grpc.aio.Server, answer: Callable[[], asyncio.Protocol], address: str
) -> AsyncIterator[str]:
    """Gives the endpoint.

    Args:
        answer: makes our end of each line that is opened.
        address: `HOST:PORT`; port 0 is any free one whose next is free, too.
    """
    host = address.rpartition(":")[0]
    port, lines = await _open(server, answer, address)
    await server.start()
    try:
        yield f"{host}:{port}"
    finally:
        lines.close()


async def _open(
    server: grpc.aio.Server, answer: Callable[[], asyncio.Protocol], address: str
) -> tuple[int, asyncio.Server]:
    host, _, wanted = address.rpartition(":")
    while True:
        port = server.add_insecure_port(f"{host}:{wanted}")
        try:
            return port, await asyncio.get_running_loop().create_server(answer, host.strip("[]"), port + 1)
        except OSError:
            if int(wanted):
                raise
