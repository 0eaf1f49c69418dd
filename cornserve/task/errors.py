"""What can go wrong between a composite task's code and its unit tasks.

`TaskError`s are errors of one request: the gateway turns them into an answer, and code inside `invoke` may
catch them like any other exception. `Suspension` is not an error, hence not an `Exception`.
"""

from __future__ import annotations


class TaskError(Exception):
    """The request cannot go on as its task is written."""


class DefinitionError(TypeError):
    """A task class or app is not well-formed; raised while it is defined or built."""


class OutsideRequestError(TaskError):
    """A unit task was invoked, or a choice drawn, where no request is being recorded."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} outside of a request: unit tasks and replayable_choice work only inside `invoke` of a task "
            "that Cornserve runs, and in the thread that runs it"
        )


class DivergenceError(TaskError):
    """A replay did not repeat what was recorded: `invoke` depends on something besides its request."""

    def __init__(self, task: str, invocation: int, difference: str) -> None:
        self.task = task
        self.invocation = invocation
        super().__init__(
            f"the replay of {task} diverged at invocation {invocation}: {difference}. `invoke` may run several times "
            "for one request and must do the same each time: no randomness (see replayable_choice), clock or state"
        )


class TooManyInvocationsError(TaskError):
    """A request recorded more invocations than its app allows."""

    def __init__(self, task: str, limit: int) -> None:
        super().__init__(
            f"{task} recorded more than {limit} invocations in one request; if that is meant, raise the app's "
            "max_invocations"
        )


class SwallowedSuspensionError(TaskError):
    """Code of a composite task caught the suspension that was meant for Cornserve."""

    def __init__(self, task: str, invocation: int, field: str | None) -> None:
        wanted = f"`{field}`" if field else "the values"
        super().__init__(
            f"{task} caught the BaseException by which it waits for {wanted} of invocation {invocation}: "
            "use `except Exception`, and neither a `return` nor a unit task in a `finally`"
        )


class AbortedError(TaskError):
    """Code of a composite task raised what is meant for a process, such as `SystemExit`."""

    def __init__(self, task: str, error: BaseException) -> None:
        super().__init__(f"{task} raised {type(error).__name__} {error}".rstrip() + ", which ends the request only")


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


class Suspension(BaseException):
    """Stops a recording where a value is read that is not there yet (values on demand, DESIGN §5.6)."""

    def __init__(self, invocation: int, field: str | None) -> None:
        self.invocation = invocation
        self.field = field

    def __str__(self) -> str:
        return f"waiting for {self.field or 'all values'} of invocation {self.invocation}"
