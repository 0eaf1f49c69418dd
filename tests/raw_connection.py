"""Connections to executors that send and receive bytes instead of messages."""

from __future__ import annotations

import asyncio

from cornserve.wire import handshake, sockets
from cornserve.wire.invocations import EXECUTOR
from tests.credentials import CREDENTIALS


async def authenticated(
    endpoint: str, preamble: bytes = EXECUTOR.preamble
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns a connection after its handshake."""
    connection = await sockets.connect(endpoint)
    await handshake.connect(connection, preamble, CREDENTIALS)
    return await asyncio.open_connection(sock=connection)
