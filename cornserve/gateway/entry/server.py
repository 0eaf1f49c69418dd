"""How the gateway's application is served over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from cornserve.gateway.entry.connection import Connection
from cornserve.limits import Limits

GRACE_SECONDS = 10
"""How long a stop waits for requests in flight."""

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
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
    )
