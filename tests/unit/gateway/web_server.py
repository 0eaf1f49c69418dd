"""Web servers with arbitrary responses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

PageHandler = Callable[[asyncio.StreamWriter], Awaitable[None]]


def respond_with(content: bytes = b"", status: int = 200, **headers: str) -> PageHandler:
    """Returns a handler that sends a response. Keywords such as `content_type` are headers."""
    all_headers = {"content-length": str(len(content))} | {
        name.replace("_", "-"): text for name, text in headers.items()
    }
    head = "".join(f"{name}: {text}\r\n" for name, text in all_headers.items())

    async def handle(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} -\r\n{head}\r\n".encode() + content)

    return handle


def redirect(to: str) -> PageHandler:
    return respond_with(status=302, location=to)


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 -\r\ncontent-type: image/png\r\n\r\n")
    while not writer.is_closing():
        writer.write(bytes(65536))
        await writer.drain()


async def slow(writer: asyncio.StreamWriter) -> None:
    """Sends one byte at a time."""
    for byte in b"HTTP/1.1 200 -\r\ncontent-type: image/png\r\n\r\n" + bytes(1000):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.1)


async def silent(writer: asyncio.StreamWriter) -> None:
    """Sends nothing until the client disconnects."""
    await asyncio.Future()


@dataclass
class WebServer:
    port: int = 0
    pages: dict[str, PageHandler] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    """The heads of the received requests."""
    connections: int = 0
    """The number of all connections."""
    open: int = 0
    """The number of open connections."""

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            await self._respond(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        page = asyncio.ensure_future(self.pages[head.split(" ")[1]](writer))
        disconnect = asyncio.ensure_future(reader.read())
        await asyncio.wait((page, disconnect), return_when=asyncio.FIRST_COMPLETED)
        page.cancel()
        disconnect.cancel()
        await asyncio.gather(page, disconnect, return_exceptions=True)


@asynccontextmanager
async def web_server(host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[WebServer]:
    site = WebServer()
    server = await asyncio.start_server(site.serve, host, 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await server.wait_closed()
