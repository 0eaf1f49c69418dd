"""Runs a local gateway: `python -m cornserve.gateway --home DIR`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import uvicorn
import uvloop

from cornserve.control.launcher.local.logs import LocalLogs
from cornserve.control.store.sqlite import SqliteStore
from cornserve.gateway.api import create_api
from cornserve.home import Home
from cornserve.lifetime import told_to_stop

GRACE_SECONDS = 10
"""How long a stop waits for requests in flight."""

PORT_TAKEN = 2
"""The exit status that tells a supervisor that another try would be in vain."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="cornserve-gateway", description=__doc__)
    parser.add_argument("--home", type=Path, default=Home.default().path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        listener = _listen(options.host, options.port)
    except OSError as error:
        print(f"cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return PORT_TAKEN
    try:
        uvloop.run(serve(Home(options.home), listener))
    except BaseException:
        logging.getLogger(__name__).exception("the gateway failed")
        os._exit(1)  # Threads of libraries would keep a process that serves nobody.
    return 0


async def serve(home: Home, listener: socket.socket) -> None:
    """Serves until told to stop, then finishes what is in flight."""
    store = await SqliteStore.open(home.store)
    try:
        config = uvicorn.Config(
            create_api(store, LocalLogs(home)),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            backlog=2048,
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(told_to_stop())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
        stopping.cancel()
    finally:
        await store.close()


class _Server(uvicorn.Server):
    """Leaves signals to `told_to_stop`: uvicorn's own handling would raise them again after serving."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


if __name__ == "__main__":
    sys.exit(main())
