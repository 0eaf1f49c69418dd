"""Timers that expire together, which saves wake-ups of idle processes.

A tick is a multiple of an interval by the event loop's clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio

_EARLY_SECONDS = 0.001
"""Timers expire up to this much before their time."""


def next_tick(seconds: float) -> float:
    """Returns the time of the next tick by the event loop's clock.

    Args:
        seconds: the interval.
    """
    now = asyncio.get_running_loop().time() + _EARLY_SECONDS
    return (now // seconds + 1) * seconds


async def sleep_until_tick(seconds: float) -> None:
    """Sleeps until the next tick of an interval."""
    await asyncio.sleep(next_tick(seconds) - asyncio.get_running_loop().time())
