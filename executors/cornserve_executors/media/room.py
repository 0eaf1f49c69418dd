"""Bounds how much is under way, where pieces differ in size."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """Whoever comes first enters first, however large. What is larger than all of the room has it to itself."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        size = min(size, self._size)
        await self._enter(size)
        try:
            yield
        finally:
            self._leave(size)

    async def _enter(self, size: int) -> None:
        entered = asyncio.get_running_loop().create_future()
        self._waiting.append((size, entered))
        self._admit()
        try:
            await entered
        except asyncio.CancelledError:
            if entered.cancelled():
                self._admit()  # It may have been in the way.
            else:
                self._leave(size)
            raise

    def _leave(self, size: int) -> None:
        self._taken -= size
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            size, entered = self._waiting[0]
            if not entered.cancelled():
                if self._taken + size > self._size:
                    return
                self._taken += size
                entered.set_result(None)
            self._waiting.popleft()
