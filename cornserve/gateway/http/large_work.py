"""Shares the event loop between large requests and all others.

Threads would not: while pydantic parses or validates JSON, it holds the interpreter's lock, so no other thread runs
Python code. The work of a large request is therefore done in steps of at most tens of milliseconds, which the limits on
the size of requests ensure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import TypeVar

from cornserve.weighted_semaphore import WeightedSemaphore

Result = TypeVar("Result")


class LargeWork:
    """Runs the steps of large requests one at a time, in at most half of the event loop's time.

    After each step, the event loop serves other requests for as long as the step took. Owners take turns.
    """

    def __init__(self) -> None:
        self._turn = WeightedSemaphore(1)

    async def run(self, step: Callable[[], Result], owner: Hashable) -> Result:
        """Waits for a turn and returns the result of `step`."""
        async with self._turn.acquire(1, owner):
            started = time.perf_counter()
            try:
                return step()
            finally:
                await asyncio.sleep(time.perf_counter() - started)
