"""Code that waits in the middle, and runs on later in the same thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Generic, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from cornserve.task.errors import Suspension

T = TypeVar("T")


class SuspendableCode(Generic[T]):
    """Runs code on a separate stack, so that it can be suspended at any depth, also inside functions of libraries."""

    def __init__(self, code: Callable[[], T]) -> None:
        self._greenlet = greenlet(code)
        self._greenlet.gr_context = copy_context()
        self._is_closed = False

    def run(self) -> T | Suspension:
        """Runs the code from its start, or from where it is suspended, until it ends or is suspended.

        Returns its result, or the suspension. Raises its exceptions.
        """
        outcome: T | Suspension = self._greenlet.switch()
        return outcome

    @property
    def has_ended(self) -> bool:
        return bool(self._greenlet.dead)

    @property
    def is_current(self) -> bool:
        """Whether the caller is part of the code."""
        return self._greenlet is getcurrent()

    def suspend(self, suspension: Suspension) -> None:
        """Suspends the code, which calls this. Returns when `run` is called again, and raises when `close` is."""
        if self._is_closed:
            raise GreenletExit
        caller = self._greenlet.parent
        assert caller is not None
        caller.switch(suspension)

    def close(self) -> None:
        """Ends suspended code, whose `finally` blocks run."""
        self._is_closed = True
        if self._greenlet:  # It has started, and has not ended.
            with suppress(BaseException):  # The code has no caller any more.
                self._greenlet.throw()
