"""How the gateway's application is served over HTTP."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from cornserve.gateway.http.connection import Connection
from cornserve.limits import Limits

GRACE_SECONDS = 10
"""How long a stop waits for requests in flight, before it ends them."""

FAREWELL_SECONDS = 2
"""How long they may take to tell their clients so."""

BACKLOG = 4096
"""Connections that wait to be accepted, as far as the system lets them."""


def server_config(api: FastAPI, limits: Limits) -> uvicorn.Config:
    connection: Any = partial(Connection, limits=limits)
    return uvicorn.Config(
        api,
        http=connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS + FAREWELL_SECONDS,
        backlog=BACKLOG,
    )


class Server(uvicorn.Server):
    """uvicorn's, but requests that outlive a stop's patience get an answer; and signals are left to `told_to_stop`:
    uvicorn's own handling would raise them again after serving.
    """

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        impatience = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._give_up)
        await super().shutdown(sockets)
        impatience.cancel()

    def _give_up(self) -> None:
        for connection in self.server_state.connections:
            cast(Connection, connection).give_up()
