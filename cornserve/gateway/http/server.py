"""The HTTP server: uvicorn with this package's connections."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from cornserve.gateway.http.connection import STOPPING, HttpConnection
from cornserve.limits import Limits

GRACE_SECONDS = 10
"""The time that a stopping gateway waits for requests in flight before it cancels them."""

CANCEL_SECONDS = 2
"""The time that cancelled requests have to send their errors."""

SYNCED = "synced"
"""The key of an `asyncio.Event` in the state of an ASGI scope: the gateway has read the store."""

DATE_SECONDS = 1
"""The interval at which the header `date` changes."""

BACKLOG = 4096
"""The length of the listen queue. The operating system may allow less."""


def server_config(app: ASGIApp, limits: Limits, grace_seconds: float = GRACE_SECONDS) -> uvicorn.Config:
    connection: Any = partial(HttpConnection, limits=limits)
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=math.ceil(grace_seconds + CANCEL_SECONDS),
        backlog=BACKLOG,
    )


class HttpServer(uvicorn.Server):
    """A uvicorn server that sends an error to requests that exceed the grace period of a shutdown.

    It leaves signals to `stop_signals`: uvicorn would raise them again after it has stopped.
    """

    def __init__(self, config: uvicorn.Config, grace_seconds: float = GRACE_SECONDS) -> None:
        super().__init__(config)
        self._grace_seconds = grace_seconds
        self._stopping = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    @property
    def is_ready(self) -> bool:
        """Whether the gateway listens, has read the store, and is not stopping."""
        if not self.started or STOPPING in self.lifespan.state:
            return False
        synced: asyncio.Event = self.lifespan.state[SYNCED]
        return synced.is_set()

    def begin_shutdown(self) -> None:
        """Makes the gateway not ready and stops it: new connections end, and accepted requests finish."""
        self.should_exit = True
        self._stopping.set()
        if self.started:
            self.lifespan.state[STOPPING] = True

    async def main_loop(self) -> None:
        """Waits for the shutdown, and updates the header `date` once a second. uvicorn wakes ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_SECONDS):
                    await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.begin_shutdown()
        for listener in sockets or []:
            await self._accept_waiting(listener)
        timer = asyncio.get_running_loop().call_later(self._grace_seconds, self._cancel_requests)
        await super().shutdown(sockets)
        timer.cancel()

    async def _accept_waiting(self, listener: socket.socket) -> None:
        """Accepts the clients that have connected: closing the listener would reset their connections."""
        loop = asyncio.get_running_loop()
        for _ in range(BACKLOG):
            try:
                client, _address = listener.accept()
            except OSError:
                return
            await loop.connect_accepted_socket(self._create_connection, client)

    def _create_connection(self) -> HttpConnection:
        create: Any = self.config.http_protocol_class
        connection: HttpConnection = create(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return connection

    def _cancel_requests(self) -> None:
        for connection in list(self.server_state.connections):
            cast(HttpConnection, connection).cancel_requests()
