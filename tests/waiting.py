"""Waits for conditions instead of fixed times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(
    condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 60, interval: float = 0.005
) -> None:
    """Returns when the condition holds; fails after `seconds` of real time, which only a broken test reaches.

    Args:
        interval: the seconds between two checks.
    """
    deadline = time.monotonic() + seconds
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition does not hold after {seconds:g} s")
        await asyncio.sleep(interval)


def wait_until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Blocks until the condition holds, for fixtures without an event loop; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition does not hold after {seconds:g} s")
        time.sleep(0.02)
