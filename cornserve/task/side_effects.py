"""Calls with side effects, which run once for each request, even if its task runs several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec

from pydantic_core import PydanticSerializationError, from_json, to_json

from cornserve.task.active_recording import require_active_recording
from cornserve.task.errors import SideEffectError

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class SideEffect:
    """A call that has not run yet.

    Args:
        function: the name of the function.
    """

    function: str
    call: Callable[[], Any]

    def run(self) -> SideEffectResult:
        """Runs the call. It is an error of the call if its result cannot be written as JSON."""
        try:
            value = self.call()
        except BaseException as error:  # Some would end the thread.
            return SideEffectResult(self.function, error=f"{type(error).__name__}: {error}")
        try:
            return SideEffectResult(self.function, value=to_json(value))
        except PydanticSerializationError as error:
            return SideEffectResult(self.function, error=f"its result cannot be written as JSON: {error}")


@dataclass(frozen=True, slots=True)
class SideEffectResult:
    """The result of a call.

    Args:
        function: the name of the function.
        value: the returned value as JSON.
        error: the error of a call without a value, otherwise empty.
    """

    function: str
    value: bytes = b""
    error: str = ""

    def read(self) -> Any:
        """Returns the value. Raises `SideEffectError`."""
        if self.error:
            raise SideEffectError(self.function, self.error)
        return from_json(self.value)


def recorded(function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
    """Calls a function once for the request, and returns its result each time that `invoke` runs.

    The function runs in another thread, and has its own time limit. Its result is converted to JSON and back: a model
    becomes a dict. Raises `SideEffectError` if the function raises an exception or takes too long.
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    recording = require_active_recording("recorded was called")
    return recording.run_once(SideEffect(name, partial(function, *args, **kwargs)))
