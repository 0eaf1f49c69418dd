"""Bounds how much is under way, where pieces differ in size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from cornserve_executors.media.fair_queue import FairQueue


class WeightedSemaphore:
    """Owners enter in turns, whatever the size. What is larger than all of the room has it to itself."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._waiting = FairQueue[tuple[int, asyncio.Future[None]]]()

    @asynccontextmanager
    async def take(self, size: int, owner: Hashable) -> AsyncIterator[None]:
        size = min(size, self._size)
        await self._enter(size, owner)
        try:
            yield
        finally:
            self._leave(size)

    async def _enter(self, size: int, owner: Hashable) -> None:
        entered = asyncio.get_running_loop().create_future()
        self._waiting.add((size, entered), owner)
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
            size, entered = self._waiting.next()
            if not entered.cancelled():
                if self._taken + size > self._size:
                    return
                self._taken += size
                entered.set_result(None)
            self._waiting.take()
