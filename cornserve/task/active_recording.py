"""The recording for which the current code of a composite task runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from cornserve.task.errors import OutsideRequestError
from cornserve_policies.replayable_random import ReplayableRandom


class ActiveRecording(Protocol):
    """The interface of `Recording` for unit tasks and `replayable_choice`."""

    random: ReplayableRandom

    def invoke(self, task: Any, request: Any) -> Any:
        """Records an invocation of the unit task `task`, or repeats it. Returns its output."""
        ...

    def run_once(self, name: str, arguments: bytes, function: Callable[[], Any]) -> Any:
        """Returns the value of a function with side effects, which runs once for the request.

        Args:
            arguments: the arguments as JSON, by which a replay is compared.
            function: the function with its arguments.
        """
        ...

    def record_yield(self, value: Any) -> None:
        """Records a value or a stream that a generator has yielded."""
        ...


active_recording: ContextVar[ActiveRecording] = ContextVar("active_recording")


def require_active_recording(operation: str) -> ActiveRecording:
    """Returns the active recording. Outside of a request, raises an error with the name of the operation."""
    recording = active_recording.get(None)
    if recording is None:
        raise OutsideRequestError(operation)
    return recording


def replayable_choice(n: int, p: Sequence[float] | None = None) -> int:
    """Returns a random index below `n`; every replay of the request returns the same [C Listing 2].

    Args:
        p: weights of the `n` alternatives; by default, all are equally likely.
    """
    if n < 1:
        raise ValueError(f"cannot choose among {n} alternatives: give a positive number")
    if p is not None and len(p) != n:
        raise ValueError(f"{n} alternatives need {n} probabilities, not {len(p)}")
    return require_active_recording("replayable_choice was called").random.choose([1.0] * n if p is None else p)
