"""A clock for tests of timeouts, delays and intervals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

T = TypeVar("T")

REAL_SECONDS = 60
"""The real time after which `advance_until` fails, which only a broken test reaches."""


class LoopClock:
    """Moves the clock of the running event loop forward, so that its timers expire without a wait.

    Real time continues to pass: sockets, threads and other processes work as usual, and short timers also expire
    without the test.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def advance(self, seconds: float) -> None:
        """Makes all timers of this time expire when the event loop runs next. An interval elapses once."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._real_time = self._loop.time
            self._loop.time = self._time  # type: ignore[method-assign]
        self._ahead += seconds

    async def advance_by(self, seconds: int) -> None:
        """Advances the clock in steps of a second, between which other processes run for some milliseconds."""
        for _ in range(seconds):
            self.advance(1)
            await asyncio.sleep(0.005)

    async def advance_until(self, condition: Callable[[], bool], *, step: float, at_most: float = inf) -> None:
        """Advances the clock by `step` again and again until the condition holds.

        Args:
            at_most: the seconds after which the clock stands still. On a busy machine, other processes may need more
                real time, in which no other time limit is to expire.
        """
        advanced = 0.0
        deadline = time.monotonic() + REAL_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the condition does not hold after {REAL_SECONDS} s")
            if advanced < at_most:
                self.advance(step)
                advanced += step
            await asyncio.sleep(0.005)

    async def advance_during(self, awaitable: Awaitable[T], *, step: float) -> T:
        """Advances the clock by `step` again and again until the awaitable is done. Returns its result."""
        task = asyncio.ensure_future(awaitable)
        try:
            await self.advance_until(task.done, step=step)
        finally:
            task.cancel()
        return await task

    def _time(self) -> float:
        return self._real_time() + self._ahead
