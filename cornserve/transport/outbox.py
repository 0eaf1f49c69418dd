"""What is to be said on one stream, gathered into frames.

While one frame is written, more gathers and leaves together in the next: gRPC's cost per message is shared.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Outbox(Generic[T]):
    def __init__(self) -> None:
        self._items: list[T] = []
        self._filled = asyncio.Event()
        self._is_closed = False

    def put(self, item: T) -> None:
        self._items.append(item)
        self._filled.set()

    def close(self) -> None:
        """There is nothing more after what has been put."""
        self._is_closed = True
        self._filled.set()

    async def next(self) -> list[T]:
        """What has gathered; waits for it. Empty at the end."""
        if not self._items and not self._is_closed:
            self._filled.clear()
            await self._filled.wait()
        items, self._items = self._items, []
        return items
