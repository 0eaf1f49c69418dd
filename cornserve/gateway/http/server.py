"""The HTTP server: uvicorn with this package's connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from cornserve.gateway.http.connection import HttpConnection
from cornserve.limits import Limits

GRACE_SECONDS = 10
"""The time that a stopping gateway waits for requests in flight before it cancels them."""

CANCEL_SECONDS = 2
"""The time that cancelled requests have to send their errors."""

BACKLOG = 4096
"""The length of the listen queue. The operating system may allow less."""


def server_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
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
        timeout_graceful_shutdown=GRACE_SECONDS + CANCEL_SECONDS,
        backlog=BACKLOG,
    )


class HttpServer(uvicorn.Server):
    """A uvicorn server that sends an error to requests that exceed the grace period of a shutdown.

    It leaves signals to `stop_signals`: uvicorn would raise them again after it has stopped.
    """

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._cancel_requests)
        await super().shutdown(sockets)
        timer.cancel()

    def _cancel_requests(self) -> None:
        for connection in self.server_state.connections:
            cast(HttpConnection, connection).cancel_requests()
