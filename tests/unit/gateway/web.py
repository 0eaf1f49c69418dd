"""Web servers of the test's own, which answer as no decent one would."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(content: bytes = b"", status: int = 200, **headers: str) -> Handler:
    """`content_type="image/png"` and the like are headers."""
    named = {"content-length": str(len(content))} | {name.replace("_", "-"): text for name, text in headers.items()}
    head = "".join(f"{name}: {text}\r\n" for name, text in named.items())

    async def handle(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} -\r\n{head}\r\n".encode() + content)

    return handle


def redirect(to: str) -> Handler:
    return answer(status=302, location=to)


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 -\r\ncontent-type: image/png\r\n\r\n")
    while not writer.is_closing():
        writer.write(bytes(65536))
        await writer.drain()


async def slow(writer: asyncio.StreamWriter) -> None:
    """A byte now and then."""
    for byte in b"HTTP/1.1 200 -\r\ncontent-type: image/png\r\n\r\n" + bytes(1000):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.1)


async def silent(writer: asyncio.StreamWriter) -> None:
    """Until the other end has left."""
    await asyncio.Future()


@dataclass
class Web:
    port: int = 0
    pages: dict[str, Handler] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The heads of all requests."""
    connections: int = 0
    """That there have been."""
    open: int = 0
    """That there are."""

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        page = asyncio.ensure_future(self.pages[head.split(" ")[1]](writer))
        left = asyncio.ensure_future(reader.read())
        await asyncio.wait((page, left), return_when=asyncio.FIRST_COMPLETED)
        page.cancel()
        left.cancel()
        await asyncio.gather(page, left, return_exceptions=True)


@asynccontextmanager
async def web(host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    served = Web()
    server = await asyncio.start_server(served.serve, host, 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        await server.wait_closed()
