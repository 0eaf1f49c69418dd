"""The items of one stream output, between the executor that sends them and their readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from cornserve.task.errors import InvocationError


class StreamBuffer:
    """Keeps all items, so that every reader gets them from the first."""

    __slots__ = ("_closed", "_error", "_waiting", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._waiting: list[asyncio.Future[None]] = []
        """Readers that have read all items so far."""
        self._closed = False
        self._error: InvocationError | None = None

    def append(self, item: Any) -> None:
        self.items.append(item)
        self._wake_readers()

    def close(self, error: InvocationError | None) -> None:
        self._closed = True
        self._error = error
        self._wake_readers()

    async def batches(self) -> AsyncIterator[Sequence[Any]]:
        """Yields all items that have arrived since the last batch. Slow readers receive larger batches.

        Raises the invocation's error after the items that came before it.
        """
        position = 0
        while True:
            if items := self.items[position:]:
                position += len(items)
                yield items
            elif self._closed:
                break
            else:
                waiter = asyncio.get_running_loop().create_future()
                self._waiting.append(waiter)
                await waiter
        if self._error is not None:
            raise self._error

    def _wake_readers(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():  # The reader may have been cancelled.
                waiter.set_result(None)
        self._waiting.clear()
