"""The items of one stream output on their way from an executor to whoever reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from cornserve.task.errors import InvocationError


class Channel:
    """Keeps the items, so that each reader gets them from the first."""

    __slots__ = ("_closed", "_error", "_waiting", "items")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._waiting: list[asyncio.Future[None]] = []
        """Readers that have read all there is."""
        self._closed = False
        self._error: InvocationError | None = None

    def put(self, item: Any) -> None:
        self.items.append(item)
        self._wake()

    def close(self, error: InvocationError | None) -> None:
        self._closed = True
        self._error = error
        self._wake()

    async def read(self) -> AsyncIterator[Sequence[Any]]:
        """What is there, then what has arrived meanwhile, and so on: a reader that falls behind gets more at once.

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

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():  # its reader has left
                waiter.set_result(None)
        self._waiting.clear()
