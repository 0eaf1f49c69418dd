"""The items of one stream output on their way from an executor to whoever reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from cornserve.task.errors import InvocationError


class Channel:
    """Keeps the items, so that each reader gets them from the first."""

    __slots__ = ("_changed", "_closed", "_error", "_items")

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._changed = asyncio.Event()
        self._closed = False
        self._error: InvocationError | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._changed.set()

    def close(self, error: InvocationError | None) -> None:
        self._closed = True
        self._error = error
        self._changed.set()

    async def read(self) -> AsyncIterator[Any]:
        """Raises the invocation's error after the items that came before it."""
        position = 0
        while True:
            while position < len(self._items):
                yield self._items[position]
                position += 1
            if self._closed:
                break
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error
