"""Calls with side effects, which run once for each request, even if its task runs several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec

from pydantic_core import from_json, to_json

from cornserve.exception_text import exception_message, exception_text
from cornserve.observe.redaction import redacted_traceback
from cornserve.task.active_recording import require_active_recording
from cornserve.task.call_arguments import encode_arguments
from cornserve.task.errors import SideEffectError
from cornserve.task.side_effect_call import SideEffectCall
from cornserve.tracebacks import clear_traceback

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class SideEffect:
    """A call that has not run yet."""

    call: SideEffectCall
    function: Callable[[], Any]
    """The function with its arguments."""

    def run(self, source: str = "", *, logs_messages: bool = False) -> SideEffectResult:
        """Runs the call. It is an error of the call if its result cannot be written as JSON.

        Args:
            source: the directory of the app's source: see `redacted_traceback`.
            logs_messages: whether the traceback has the messages of errors.
        """
        try:
            value = self.function()
        except BaseException as error:  # Some would end the thread.
            return self._failure(exception_text(error), error, source, logs_messages)
        try:
            encoded = to_json(value)
            from_json(encoded)  # It refuses some numbers that `to_json` writes.
            return SideEffectResult(self.call, value=encoded)
        except ValueError as error:
            description = f"its result cannot be written as JSON: {exception_message(error)}"
            return self._failure(description, error, source, logs_messages)

    def _failure(self, description: str, error: BaseException, source: str, logs_messages: bool) -> SideEffectResult:
        own_frame = error.__traceback__
        inner = error.with_traceback(None if own_frame is None else own_frame.tb_next)
        traceback = redacted_traceback(inner, source, shows_messages=logs_messages)
        clear_traceback(error)
        return SideEffectResult(self.call, error=description, traceback=traceback)


@dataclass(frozen=True, slots=True)
class SideEffectResult:
    """The result of a call.

    Args:
        value: the returned value as JSON.
        error: the error of a call without a value, otherwise empty.
        traceback: the frames and the type of the error.
    """

    call: SideEffectCall
    value: bytes = b""
    error: str = ""
    traceback: str = ""

    def read(self) -> Any:
        """Returns the value. Raises `SideEffectError`."""
        if self.error:
            error = SideEffectError(self.call.function, self.error)
            if self.traceback:
                error.add_note(self.traceback)
            raise error
        return from_json(self.value)


def recorded(function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
    """Calls a function once for the request, and returns its result each time that `invoke` runs.

    The function runs in another thread, and has its own time limit. Its result is converted to JSON and back: a model
    becomes a dict. Raises `SideEffectError` if the function raises an exception or takes too long.
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    recording = require_active_recording("recorded was called")
    return recording.run_once(name, encode_arguments(args, kwargs), partial(function, *args, **kwargs))
