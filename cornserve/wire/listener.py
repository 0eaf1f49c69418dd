"""Accepts connections of the instance's processes and dispatches each to a protocol by its preamble."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Final

from cornserve.observe.limited_log import LimitedLog
from cornserve.wire import handshake, sockets
from cornserve.wire.credentials import ConnectionCredentials

HANDSHAKE_SECONDS = 5.0
"""Limit for the handshake of an accepted connection."""

MAX_PENDING: Final = 256
"""Connections whose other end has not proven yet that it has the secret. A further connection replaces the oldest: a
handshake takes milliseconds, so that processes of the instance are connected even while others occupy all places."""

BACKLOG: Final = 1024

ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Pause after a failed accept. A file descriptor may be available then."""

ConnectionFactories = Mapping[bytes, Callable[[], asyncio.BaseProtocol]]
"""Functions by preamble. Each creates this process's end of an authenticated connection."""

log = logging.getLogger(__name__)


class ConnectionListener:
    """Calls a factory only for connections whose other end has proven that it has the instance's secret."""

    def __init__(self, factories: ConnectionFactories, credentials: ConnectionCredentials) -> None:
        self._factories = factories
        self._credentials = credentials
        self._listener: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._pending: dict[asyncio.Task[None], None] = {}
        """The tasks of connections whose other end has not sent its proof yet, the oldest first."""
        self._log = LimitedLog(log)

    async def listen(self, endpoint: str) -> str:
        """Accepts connections.

        Args:
            endpoint: `HOST:PORT`; port 0 is any free one.

        Returns:
            the endpoint with its port.

        Raises:
            OSError: the port is in use.
        """
        host, port = sockets.split_endpoint(endpoint)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._listener.setblocking(False)
        self._resume()
        return f"{endpoint.rpartition(':')[0]}:{self._listener.getsockname()[1]}"

    async def close(self) -> None:
        """Stops accepting connections. Established connections are not affected."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _resume(self) -> None:
        assert self._listener is not None
        # The event loop calls the reader once per iteration: established connections are served between two accepts.
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client has disconnected
            return
        except OSError as error:
            self._log.warning("cannot accept a connection: %s", error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            self._pause = loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume)
            return
        connection.setblocking(False)
        self._start_handshake(connection)

    def _start_handshake(self, connection: socket.socket) -> None:
        if len(self._pending) >= MAX_PENDING:
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.cancel()
            self._log.warning("closed a connection: %d others are in their handshakes", MAX_PENDING)
        task = asyncio.create_task(self._open(connection), context=Context())
        self._pending[task] = None
        self._opening.add(task)
        task.add_done_callback(partial(self._on_opened, connection))

    def _on_opened(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._pending.pop(task, None)
        self._opening.discard(task)
        if task.cancelled():  # perhaps before it started
            connection.close()

    async def _open(self, connection: socket.socket) -> None:
        peer = "a process that has disconnected"
        try:
            peer = sockets.remote_address(connection)
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._authenticate(connection)
        except OSError as error:  # a timeout is one
            connection.close()
            is_timeout = isinstance(error, TimeoutError) and error.errno is None
            reason = f"no handshake within {HANDSHAKE_SECONDS:g} s" if is_timeout else error
            self._log.warning("closed a connection of %s: %s", peer, reason)

    async def _authenticate(self, connection: socket.socket) -> None:
        sockets.configure(connection)
        preamble = await handshake.accept(connection, self._factories, self._credentials)
        self._pending.pop(asyncio.current_task(), None)  # type: ignore[arg-type]  # `_open` runs in a task
        await sockets.attach_accepted(connection, self._factories[preamble], self._credentials.tls)
