"""Code that waits in the middle, and runs on later in the same thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar, cast

from greenlet import GreenletExit, getcurrent, greenlet

from cornserve.task.errors import Suspension

T = TypeVar("T")

MAX_IDLE_STACKS: Final = 128
"""The stacks of a thread that are kept for further code: creating one takes longer than a short task runs."""


class _IdleStacks(threading.local):
    def __init__(self) -> None:
        self.stacks: list[greenlet] = []


_idle = _IdleStacks()


class SuspendableCode(Generic[T]):
    """Runs code on a separate stack, so that it can be suspended at any depth, also inside functions of libraries."""

    __slots__ = ("_code", "_context", "_error", "_is_closed", "_result", "_stack", "has_ended")

    def __init__(self, code: Callable[[], T]) -> None:
        self._code = code
        self._context = copy_context()
        self._stack: greenlet | None = None
        """The stack of code that has started and not ended."""
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_closed = False
        self.has_ended = False

    def run(self) -> T | Suspension:
        """Runs the code from its start, or from where it is suspended, until it ends or is suspended.

        Returns its result, or the suspension. Raises its exceptions.
        """
        if self._stack is None:
            self._stack = _idle.stacks.pop() if _idle.stacks else greenlet(_run_each)
        self._stack.parent = getcurrent()
        suspension: Suspension = self._stack.switch(self)
        if not self.has_ended:
            return suspension
        self._stack = None
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return cast(T, self._result)
        finally:
            del error  # Its traceback refers to this frame.

    @property
    def is_current(self) -> bool:
        """Whether the caller is part of the code."""
        return self._stack is getcurrent()

    def suspend(self, suspension: Suspension) -> None:
        """Suspends the code, which calls this. Returns when `run` is called again, and raises when `close` is."""
        assert self._stack is not None
        assert self._stack.parent is not None
        if self._is_closed:
            raise GreenletExit
        self._stack.parent.switch(suspension)

    def close(self) -> None:
        """Ends suspended code, whose `finally` blocks run. Its result and its errors are dropped."""
        self._is_closed = True
        if self._stack is not None:
            self._stack.parent = getcurrent()
            self._stack.throw()
            self._stack = self._error = None

    def _run_on_stack(self) -> None:
        try:
            self._result = self._context.run(self._code)
        except BaseException as error:
            self._error = error
        self.has_ended = True


def _run_each(code: SuspendableCode[Any]) -> None:
    """Runs one code after another on the current stack, which is idle between them."""
    stack = getcurrent()
    while True:
        code._run_on_stack()
        del code  # An idle stack keeps nothing of its last code.
        assert stack.parent is not None
        if len(_idle.stacks) == MAX_IDLE_STACKS:
            return
        _idle.stacks.append(stack)
        code = stack.parent.switch()
