"""HTTP servers that give one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp.test_utils import RawTestServer
from aiohttp.web import BaseRequest, StreamResponse


@asynccontextmanager
async def answering_server(*parts: bytes, status: int = 200) -> AsyncIterator[tuple[str, Sequence[str]]]:
    """Answers every request with the parts of a body, one after the other.

    Yields the address, and the bodies of the received requests.
    """
    received: list[str] = []

    async def answer(request: BaseRequest) -> StreamResponse:
        received.append(await request.text())
        response = StreamResponse(status=status)
        response.content_length = sum(map(len, parts))
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        return response

    async with RawTestServer(answer, host="127.0.0.1") as server:
        yield str(server.make_url("")).rstrip("/"), received
