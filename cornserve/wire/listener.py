"""Accepts connections and dispatches each to a handler by its preamble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from cornserve.wire.connection import MessageConnection, connection_address

PREAMBLE_TIMEOUT_SECONDS = 10.0

ConnectionFactories = Mapping[bytes, Callable[[], MessageConnection[Any, Any]]]
"""Functions by preamble. Each creates this process's end of an accepted connection."""


class MessageListener:
    def __init__(self, factories: ConnectionFactories) -> None:
        self._factories = factories
        self._server: asyncio.Server | None = None
        self._pending: set[_PendingConnection] = set()

    async def listen(self, endpoint: str) -> str:
        """Accepts connections at the endpoint's `connection_address`.

        Args:
            endpoint: `HOST:PORT`; port 0 is any free one.

        Returns:
            the endpoint with its port. The listener does not use the endpoint's port itself.

        Raises:
            OSError: the port is in use.
        """
        host, wanted = endpoint.rsplit(":", 1)
        address, port = connection_address(endpoint)
        create_server = asyncio.get_running_loop().create_server
        self._server = await create_server(self._accept, address, port if int(wanted) else 0)
        return f"{host}:{self._server.sockets[0].getsockname()[1] - 1}"

    def close(self) -> None:
        """Stops accepting connections. Established connections are not affected."""
        if self._server is not None:
            self._server.close()
        for pending in list(self._pending):
            pending.abort()

    def _accept(self) -> asyncio.Protocol:
        pending = _PendingConnection(self._factories, self._pending.discard)
        self._pending.add(pending)
        return pending


class _PendingConnection(asyncio.Protocol):
    """An accepted connection that has not sent its preamble yet."""

    def __init__(self, factories: ConnectionFactories, on_done: Callable[[_PendingConnection], None]) -> None:
        self._factories = factories
        self._on_done = on_done
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timeout = asyncio.get_running_loop().call_later(PREAMBLE_TIMEOUT_SECONDS, self.abort)

    def abort(self) -> None:
        self._finish()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from asyncio's

    def data_received(self, data: bytes) -> None:
        self._received += data
        for preamble, create in self._factories.items():
            if self._received.startswith(preamble):
                self._hand_over(create())
                return
        if not any(preamble.startswith(self._received) for preamble in self._factories):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def _hand_over(self, connection: MessageConnection[Any, Any]) -> None:
        assert self._transport is not None
        self._finish()
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        connection.data_received(self._received)

    def _finish(self) -> None:
        self._timeout.cancel()
        self._on_done(self)
