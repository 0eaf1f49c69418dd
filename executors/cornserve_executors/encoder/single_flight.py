"""What several ask for at the same time is made once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Whoever asks for what is being made, or still used, shares it; when nobody wants it any more, it is broken off.

    So if those who use it put it where later ones look first, it is made once for all of them.
    """

    def __init__(self) -> None:
        self._passengers: dict[asyncio.Task[Result], int] = {}
        self._flights: dict[str, asyncio.Task[Result]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._flights

    @asynccontextmanager
    async def join(self, key: str, make: Callable[[], Coroutine[Any, Any, Result]]) -> AsyncIterator[Result]:
        """What `make()` returns or raises; it runs as a task of its own, as the first who asks does not outlive it."""
        task = self._flights.get(key)
        if task is None:
            task = self._flights[key] = asyncio.create_task(make())
            task.add_done_callback(_hear)
        self._passengers[task] = self._passengers.get(task, 0) + 1
        try:
            await asyncio.wait({task})
            yield task.result()
        finally:
            self._passengers[task] -= 1
            if not self._passengers[task]:
                self._end(key, task)

    def _end(self, key: str, task: asyncio.Task[Result]) -> None:
        del self._passengers[task]
        del self._flights[key]
        task.cancel()


def _hear(task: asyncio.Task[Any]) -> None:
    """Of its error, as nobody may be left whom it concerns."""
    if not task.cancelled():
        task.exception()
