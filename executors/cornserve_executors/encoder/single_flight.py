"""Deduplicates concurrent work by key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Runs one task per key, and shares its result among all callers that join before the result is released.

    The task is cancelled when its last caller leaves. A caller that stores the result in a cache before it leaves
    therefore ensures that later callers find the result either here or in the cache.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Result]] = {}
        self._waiters: dict[asyncio.Task[Result], int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._tasks

    @asynccontextmanager
    async def join(self, key: str, make: Callable[[], Coroutine[Any, Any, Result]]) -> AsyncIterator[Result]:
        """Yields the result of `make()` for this key, or raises its error.

        `make()` runs in a separate task, so that the cancellation of the first caller does not affect the others.
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(make())
            task.add_done_callback(_retrieve_exception)
        self._waiters[task] = self._waiters.get(task, 0) + 1
        try:
            await asyncio.wait({task})
            yield task.result()
        finally:
            self._waiters[task] -= 1
            if not self._waiters[task]:
                self._remove(key, task)

    def _remove(self, key: str, task: asyncio.Task[Result]) -> None:
        del self._waiters[task]
        del self._tasks[key]
        task.cancel()


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Prevents asyncio's warning about an exception that was never retrieved: all callers may have left."""
    if not task.cancelled():
        task.exception()
