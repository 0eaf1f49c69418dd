"""Cancels a request when its client disconnects or the gateway stops.

ASGI reports a disconnect by a message, and a task that waits for it would take a tenth of the CPU time of a response.
Here the connection calls the request's listeners instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from starlette.types import Scope

from cornserve.gateway.errors import ApiError

CANCELLATION = "cancellation"
"""The key of the connection's `RequestCancellation` in the state of an ASGI scope."""


class RequestCancellation:
    """Cancels the requests of one connection."""

    __slots__ = ("error", "listeners")

    def __init__(self) -> None:
        self.listeners: set[Callable[[], None]] = set()
        self.error: ApiError | None = None
        """The reason, set by `cancel`."""

    def cancel(self, error: ApiError) -> None:
        self.error = error
        for listener in self.listeners:
            listener()


class CancelOnDisconnect:
    """Cancels the body of a `with` statement when the client disconnects or the gateway stops, and raises the error."""

    def __init__(self, scope: Scope) -> None:
        self._cancellation: RequestCancellation = scope["state"][CANCELLATION]
        self._is_cancelled = False

    def __enter__(self) -> Self:
        if self._cancellation.error is not None:
            raise self._cancellation.error
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancellation.listeners.add(self._cancel)
        return self

    def _cancel(self) -> None:
        if not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cancellation.listeners.discard(self._cancel)
        # uncancel() returns more than 0 if the task is cancelled for another reason, too.
        if self._is_cancelled and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            assert self._cancellation.error is not None
            raise self._cancellation.error from error
