"""Where an executor listens: at gRPC's port, which is its endpoint, and at the one after it, for lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from cornserve.wire.listener import Answers, MessageListener


@asynccontextmanager
async def listening(server: grpc.aio.Server, answers: Answers, address: str) -> AsyncIterator[str]:
    """Gives the endpoint.

    Args:
        answers: makes our end of each line that is opened.
        address: `HOST:PORT`; port 0 is any free one whose next is free, too.
    """
    reception = MessageListener(answers)
    endpoint = await _open(server, reception, address)
    await server.start()
    try:
        yield endpoint
    finally:
        reception.close()


async def _open(server: grpc.aio.Server, reception: MessageListener, address: str) -> str:
    host, _, wanted = address.rpartition(":")
    while True:
        port = server.add_insecure_port(f"{host}:{wanted}")
        try:
            return await reception.open(f"{host}:{port}")
        except OSError:
            if int(wanted):
                raise
