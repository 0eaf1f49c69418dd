"""Errors of tasks: in their definition, and while they run for a request.

A `TaskError` concerns one request. The gateway turns it into an error response, and code inside `invoke` may catch it
like any other exception. `Suspension` is control flow and not an error, so it is not an `Exception`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cornserve.exception_text import exception_message
from cornserve.task.side_effect_call import SideEffectCall


class TaskError(Exception):
    """The request cannot be completed because of its task's code or of an invocation."""


class DefinitionError(TypeError):
    """A task class or an app is not well-formed. Raised while it is defined or built."""


class OutsideRequestError(TaskError):
    """An operation that needs an active recording was used without one."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"{operation} outside of a request: unit tasks and replayable_choice work only inside `invoke` of a task "
            "that Cornserve runs, and in the thread that runs it"
        )


class ReleasedOutputError(TaskError):
    """An output, or a reference in it, was used after its request."""

    def __init__(self, used: str) -> None:
        super().__init__(
            f"{used} was used after its request: an output is valid until its request ends, so do not keep it in a "
            "global variable, a cache or an attribute"
        )


class DivergenceError(TaskError):
    """A replay did not repeat the recording: `invoke` depends on something other than its request."""

    def __init__(self, task: str, invocation: int | None, difference: str) -> None:
        self.task = task
        self.invocation = invocation
        place = "" if invocation is None else f" at invocation {invocation}"
        super().__init__(
            f"the replay of {task} diverged{place}: {difference}. `invoke` may run several times "
            "for one request and must do the same each time: no randomness (see replayable_choice), clock or state"
        )


class ResponseTypeError(TaskError):
    """A task has returned something else than its declared response."""

    def __init__(self, task: str, response: object, expected: Sequence[type]) -> None:
        names = " or ".join(kind.__name__ for kind in expected)
        super().__init__(f"{task} returned a value of the type {type(response).__name__}, not {names}")


class YieldTypeError(TaskError):
    """A task has yielded a value that cannot be a part of its response.

    Args:
        expected: the values that the task can yield, such as "a str".
    """

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(f"invoke yielded a value of the type {type(value).__name__}: yield {expected}")


class TooManyInvocationsError(TaskError):
    """A request recorded more invocations than its app allows."""

    def __init__(self, task: str, limit: int) -> None:
        super().__init__(
            f"{task} recorded more than {limit} invocations in one request: raise the app's max_invocations if the "
            "task needs more"
        )


class TensorStreamError(TaskError):
    """A stream of tensors was passed to a consumer that cannot read it from its start while it is produced."""

    def __init__(self, task: str, invocation: int, output: str, rule: str) -> None:
        super().__init__(f"{task} cannot read the stream {output!r} of invocation {invocation}: {rule}")


class SwallowedSuspensionError(TaskError):
    """Code of a composite task caught a `Suspension`, which Cornserve must receive."""

    def __init__(self, task: str, awaited: str) -> None:
        super().__init__(
            f"{task} caught the BaseException by which it waits for {awaited}: "
            "use `except Exception`, and neither a `return` nor a unit task in a `finally`"
        )


class AbortedError(TaskError):
    """Code of a composite task raised an exception that ends a process, such as `SystemExit`."""

    def __init__(self, task: str, error: BaseException) -> None:
        text = f"{type(error).__name__} {exception_message(error)}".rstrip()
        super().__init__(f"{task} raised {text}, which ends the request only")


class InvocationError(TaskError):
    """A unit task's invocation failed; raised where its output is read.

    `code` is the name of the executor contract's code ("INVALID_ARGUMENT", "UNAVAILABLE", …).
    """

    def __init__(self, task: str, invocation: int, code: str, message: str) -> None:
        self.task = task
        self.invocation = invocation
        self.code = code
        self.message = message
        super().__init__(f"{task} (invocation {invocation}) failed with {code}: {message}")


class SideEffectError(TaskError):
    """A function that was called by `recorded` has raised an exception, or has taken too long.

    Args:
        function: the name of the function.
    """

    def __init__(self, function: str, reason: str) -> None:
        super().__init__(f"{function}: {reason}")


class Suspension(BaseException):
    """Ends a run, which needs a value that is not available yet.

    Args:
        awaited: the value, such as "`text` of invocation 3".
    """

    def __init__(self, awaited: str) -> None:
        self.awaited = awaited

    def __str__(self) -> str:
        return f"waiting for {self.awaited}"


class OutputSuspension(Suspension):
    """Code reads an output of an invocation that has not ended."""

    def __init__(self, invocation: int, field: str | None) -> None:
        self.invocation = invocation
        self.field = field
        """The field that was read, or None for all values of the invocation."""
        super().__init__(f"{f'`{field}`' if field else 'the values'} of invocation {invocation}")


class SideEffectSuspension(Suspension):
    """Code has called `recorded`."""

    def __init__(self, call: SideEffectCall) -> None:
        self.call = call
        super().__init__(f"the result of {call.function}")
