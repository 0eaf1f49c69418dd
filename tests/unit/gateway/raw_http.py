"""Raw HTTP connections, for requests that client libraries do not send."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx


@dataclass(frozen=True, slots=True)
class RawResponse:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        """The message of an error in OpenAI's format."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return str(error["message"])


@dataclass(frozen=True, slots=True)
class RawConnection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def local_port(self) -> int:
        port: int = self.writer.get_extra_info("sockname")[1]
        return port

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_response(self) -> RawResponse:
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            return RawResponse(
                int(status.split(" ")[1]), headers, await self.reader.readexactly(int(headers["content-length"]))
            )

    async def is_closed(self) -> bool:
        """Waits until the server closes the connection. Returns False if it sends more data."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    async def ends(self) -> bool:
        """Waits until the server ends the connection. Returns False if it sends more data. Raises if it resets it."""
        async with asyncio.timeout(60):
            return await self.reader.read() == b""


@asynccontextmanager
async def raw_connection(gateway: httpx.AsyncClient | int) -> AsyncIterator[RawConnection]:
    """Opens a connection with a small receive buffer to a gateway or a port."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", gateway if isinstance(gateway, int) else gateway.base_url.port))
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.close()


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def post(path: str, *headers: str) -> bytes:
    """Returns the head of a POST request. The caller sends the body."""
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()
