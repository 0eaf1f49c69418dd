"""Waiting for whatever comes first, with one owner for both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def done_before(event: asyncio.Event, work: Awaitable[Any]) -> bool:
    """Whether `work` was done before the event came, in which case it is cancelled. Raises its error."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
