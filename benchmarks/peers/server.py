"""The HTTP server of the peers in Python, configured like the gateway's."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp


def serve(app: ASGIApp, port: int) -> None:
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", log_config=None, access_log=False, backlog=2048)
