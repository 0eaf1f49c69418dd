"""HTTP by hand, for what no client library would send."""

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
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        """Of an error in OpenAI's shape."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return str(error["message"])


@dataclass(frozen=True, slots=True)
class Raw:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> Answer:
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            return Answer(
                int(status.split(" ")[1]), headers, await self.reader.readexactly(int(headers["content-length"]))
            )

    async def is_closed(self) -> bool:
        """Waits until the other side has closed it."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def raw(gateway: httpx.AsyncClient) -> AsyncIterator[Raw]:
    """A connection whose buffers hold little of what is not read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", gateway.base_url.port))
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


def post(path: str, *headers: str) -> bytes:
    """The head of a request whose body follows."""
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()
