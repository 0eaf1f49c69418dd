"""Waits for conditions instead of fixed times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 60) -> None:
    """Returns when the condition holds; fails after `seconds`, which only a broken test reaches."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(0.005)
