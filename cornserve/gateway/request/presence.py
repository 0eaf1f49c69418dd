"""A client that leaves ends what is done for it.

ASGI tells of it by a message, which a task of its own would have to wait for: a tenth of what a whole answer costs.
The connection knows at once, and calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from starlette.types import Scope

from cornserve.gateway.errors import ApiError

DEPARTURE = "departure"
"""Where the state of a request has the `Departure` of its client."""


class Departure:
    """Calls those who want to know that the client has left."""

    __slots__ = ("has_happened", "listeners")

    def __init__(self) -> None:
        self.listeners: set[Callable[[], None]] = set()
        self.has_happened = False

    def happen(self) -> None:
        self.has_happened = True
        for listener in self.listeners:
            listener()


class WhilePresent:
    """`async with WhilePresent(scope):` cancels what is inside when the client leaves, and raises a 499."""

    def __init__(self, scope: Scope) -> None:
        self._departure: Departure = scope["state"][DEPARTURE]
        self._has_left = False

    async def __aenter__(self) -> Self:
        if self._departure.has_happened:
            raise _left()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._departure.listeners.add(self._leave)
        return self

    def _leave(self) -> None:
        self._has_left = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._departure.listeners.discard(self._leave)
        # Above zero: someone else cancels the task, too.
        if self._has_left and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise _left() from error


def _left() -> ApiError:
    return ApiError(499, "the client has left")
