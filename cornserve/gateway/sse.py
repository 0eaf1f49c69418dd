"""Server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

SILENCE_SECONDS = 2.0
"""Clients take a longer silence for a lost connection."""

COMMENT = b": \n\n"


def event(data: bytes, name: str | None = None) -> bytes:
    """One event; `data` is a single line, as JSON is."""
    return b"data: " + data + b"\n\n" if name is None else b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


async def kept_alive(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The events, with comments, which clients skip, wherever they are silent."""
    async with aclosing(events):
        while True:
            coming = asyncio.ensure_future(anext(events))
            try:
                while not (await asyncio.wait((coming,), timeout=SILENCE_SECONDS))[0]:
                    yield COMMENT
                following = coming.result()
            except StopAsyncIteration:
                return
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            yield following
