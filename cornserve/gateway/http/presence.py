"""A client that leaves ends what is done for it, and so does the gateway that stops.

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
    """Calls those who want to know that the client has left, or that the gateway does."""

    __slots__ = ("error", "listeners")

    def __init__(self) -> None:
        self.listeners: set[Callable[[], None]] = set()
        self.error: ApiError | None = None
        """What ends the requests, once it has happened."""

    def happen(self, error: ApiError) -> None:
        self.error = error
        for listener in self.listeners:
            listener()


class WhilePresent:
    """`with WhilePresent(scope):` cancels what is inside at the departure, and raises its error."""

    def __init__(self, scope: Scope) -> None:
        self._departure: Departure = scope["state"][DEPARTURE]
        self._is_over = False

    def __enter__(self) -> Self:
        if self._departure.error is not None:
            raise self._departure.error
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._departure.listeners.add(self._leave)
        return self

    def _leave(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._departure.listeners.discard(self._leave)
        # Above zero: someone else cancels the task, too.
        if self._is_over and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            assert self._departure.error is not None
            raise self._departure.error from error


def client_left() -> ApiError:
    return ApiError(499, "the client has left")


def gateway_stops() -> ApiError:
    message = "the gateway stops, and the request took longer than it can wait: send it again"
    return ApiError(503, message, code="stopping")
