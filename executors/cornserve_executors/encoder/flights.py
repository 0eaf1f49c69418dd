"""What several ask for at the same time is made once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Flights(Generic[Result]):
    """Whoever asks for what is being made already waits for it; when nobody waits any more, it is broken off."""

    def __init__(self) -> None:
        self._passengers: dict[asyncio.Task[Result], int] = {}
        self._flights: dict[str, asyncio.Task[Result]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._flights

    async def join(self, key: str, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """What `make()` returns or raises; it runs as a task of its own, as the first who asks does not outlive it."""
        task = self._flights.get(key)
        if task is None:
            task = self._flights[key] = asyncio.create_task(make())
            task.add_done_callback(lambda task: self._land(key, task))
        self._passengers[task] = self._passengers.get(task, 0) + 1
        try:
            await asyncio.wait({task})
        finally:
            self._passengers[task] -= 1
            if not self._passengers[task]:
                del self._passengers[task]
                self._break_off(key, task)
        return task.result()

    def _break_off(self, key: str, task: asyncio.Task[Result]) -> None:
        """No effect on one that has landed."""
        self._land(key, task)
        task.cancel()

    def _land(self, key: str, task: asyncio.Task[Result]) -> None:
        if self._flights.get(key) is task:
            del self._flights[key]
        if task.done() and not task.cancelled():
            task.exception()  # Nobody may be left whom it concerns.
