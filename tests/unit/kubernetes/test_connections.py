"""Connections to an API server that does not respond when they end."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import ClientSession

from cornserve.kubernetes.connections import ApiServerConnector
from tests.certificates import certificate

RESPONSE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
"""The beginning of a watch."""


@contextmanager
def silent_server(context: ssl.SSLContext) -> Iterator[int]:
    """Yields the port of a server that begins a response and then neither reads nor sends anything."""
    ending = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(4096)
            secure.sendall(RESPONSE)
            ending.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        ending.set()
        thread.join()


async def read_first_chunk(port: int, context: ssl.SSLContext) -> bytes:
    async with (
        ClientSession(connector=ApiServerConnector(context, limit=1)) as session,
        session.get(f"https://localhost:{port}") as response,
    ):
        return await response.content.readany()


def test_no_socket_stays_open_after_the_event_loop(tmp_path: Path) -> None:
    trusted, server_context = certificate(tmp_path, "localhost")

    with silent_server(server_context) as port:
        chunk = asyncio.run(read_first_chunk(port, ssl.create_default_context(cafile=trusted)))
        gc.collect()  # An open socket would be a ResourceWarning, which fails the test.

    assert chunk == b"a"
