"""The ports of an executor: its endpoint, where gRPC listens, and the port after it for message connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from cornserve.wire.listener import ConnectionFactories, MessageListener


@asynccontextmanager
async def open_endpoint(server: grpc.aio.Server, factories: ConnectionFactories, address: str) -> AsyncIterator[str]:
    """Serves both ports; yields the endpoint.

    Args:
        factories: create this process's end of each message connection.
        address: `HOST:PORT`; port 0 is any free port whose successor is free as well.
    """
    listener = MessageListener(factories)
    endpoint = await _bind(server, listener, address)
    await server.start()
    try:
        yield endpoint
    finally:
        listener.close()


async def _bind(server: grpc.aio.Server, listener: MessageListener, address: str) -> str:
    host, _, wanted = address.rpartition(":")
    while True:
        port = server.add_insecure_port(f"{host}:{wanted}")
        try:
            return await listener.listen(f"{host}:{port}")
        except OSError:
            if int(wanted):
                raise
