"""The items of one stream output, between the executor that sends them and their readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from cornserve.task.errors import InvocationError


class StreamBuffer:
    """Keeps all items, so that every reader gets them from the first."""

    __slots__ = ("_closed", "_waiting", "error", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._waiting: list[asyncio.Future[None]] = []
        """Readers that have read all items so far."""
        self._closed = False
        self.error: InvocationError | None = None
        """The error after the last item."""

    def append(self, item: Any) -> None:
        self.items.append(item)
        if self._waiting:
            self._wake_readers()

    def close(self, error: InvocationError | None) -> None:
        self._closed = True
        self.error = error
        self._wake_readers()

    async def batches(self) -> AsyncIterator[Sequence[Any]]:
        """Yields all items that have arrived since the last batch. Slow readers receive larger batches.

        Raises the invocation's error after the items that came before it.
        """
        position = 0
        while items := await self.next_batch(position):
            position += len(items)
            yield items
        if self.error is not None:
            raise self.error

    async def next_batch(self, position: int) -> Sequence[Any]:
        """Returns the items from `position` on as soon as there are any, or an empty sequence at the end."""
        while len(self.items) <= position and not self._closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        return self.items[position:]

    def _wake_readers(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():  # The reader may have been cancelled.
                waiter.set_result(None)
        self._waiting.clear()
