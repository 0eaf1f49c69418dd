"""Record and replay of one request [C §5.2], with values on demand (DESIGN §5.6).

A `Recording` is the memory of one request. `play` runs code from its start: invocations that an earlier run
recorded are handed out again, new ones are written down. It ends with the code's result, or with the value
it waits for. Whoever owns the recording dispatches what is new, resolves invocations as answers come in, and
plays again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from cornserve.task.errors import (
    AbortedError,
    DivergenceError,
    InvocationError,
    OutsideRequestError,
    Suspension,
    SwallowedSuspensionError,
    TooManyInvocationsError,
)
from cornserve.task.output import Output, held, pending
from cornserve.task.references import Blob, Origin, ReferenceEncoder, Stream, Tensor
from cornserve.task.replayable_random import ReplayableRandom

if TYPE_CHECKING:
    from cornserve.task.unit import UnitTask

T = TypeVar("T")

DEFAULT_MAX_INVOCATIONS = 256


class OpenStream(Protocol):
    """Gives the items of a stream output as they arrive, several at once where they wait; each time from the first."""

    def __call__(self, origin: Origin) -> AsyncIterator[Sequence[Any]]: ...


class Invocation:
    """One call of a unit task: what was recorded, and what is known of its output so far."""

    __slots__ = ("_values", "ended", "error", "index", "inputs", "origins", "output", "request", "task")

    def __init__(self, index: int, task: UnitTask[Any, Any], request: bytes, inputs: tuple[Origin | Blob, ...]) -> None:
        self.index = index
        self.task = task
        self.request = request
        """The input as JSON, with `{"$input": n}` for the n-th of `inputs`."""
        self.inputs = inputs
        self.origins = frozenset(one for one in inputs if isinstance(one, Origin))
        """The outputs that it takes."""
        self.output: Output
        self.ended = False
        self.error: InvocationError | None = None
        self._values: dict[str, Any] = {}

    def put(self, field: str, value: bytes) -> None:
        """A value, as JSON, that is ready before the invocation has ended."""
        self._values[field] = self.task.layout.values[field].validate_json(value)

    def end(self, values: bytes) -> None:
        """The remaining values, as a JSON object. Raises ValueError if they do not make an output."""
        fields = from_json(values) if values else {}
        if not isinstance(fields, dict):
            raise ValueError("the values are no JSON object")
        placeholder = held(self.output)  # which has references only, until now
        self.output = self.task.output_type.model_validate(fields | self._values | placeholder)
        placeholder.update(vars(self.output))  # for code that has kept it from an earlier run
        self.ended = True

    def fail(self, code: str, message: str) -> None:
        self.fail_as(InvocationError(self.task.name, self.index, code, message))

    def fail_as(self, error: InvocationError) -> None:
        self.error = error
        self.ended = True

    @property
    def has_values(self) -> bool:
        """Whether some came ahead of the end."""
        return bool(self._values)

    def has(self, field: str | None) -> bool:
        """Whether reading `field` (None: every value) gives something, be it the error."""
        return self.ended or field in self._values

    def read(self, field: str | None) -> Any:
        """What the placeholder does not hold itself. Raises the invocation's error, or the suspension."""
        if field in self._values:
            return self._values[field]
        if self.error is not None:
            raise self.error.with_traceback(None)  # each replay raises it anew, and it would remember them all
        if not self.ended:
            raise Suspension(self.index, field)
        return None


class Recording:
    """The invocations of one request, in the order in which its task calls them."""

    def __init__(
        self,
        draws: ReplayableRandom,
        *,
        open_stream: OpenStream | None = None,
        max_invocations: int = DEFAULT_MAX_INVOCATIONS,
    ) -> None:
        self.invocations: list[Invocation] = []
        self.draws = draws
        self._first_draw = draws.index
        self._open_stream = open_stream
        self._max_invocations = max_invocations
        self._position = 0
        self._task = ""
        self._suspension: Suspension | None = None
        self._failure: InvocationError | None = None

    def play(self, task: str, code: Callable[[], T]) -> T | Suspension:
        """Runs `code` from its start. `task` names it in errors.

        Returns what `code` returns, or the suspension that says which value it waits for.
        Raises what `code` raises, and `TaskError`s.
        """
        self._position = 0
        self._task = task
        self._suspension = self._failure = None
        self.draws.index = self._first_draw
        token = _current.set(self)
        try:
            result = code()
        except Suspension as suspension:
            return suspension.with_traceback(None)  # which has all that was at hand, and whoever keeps it would, too
        except (ValidationError, PydanticSerializationError) as error:
            # pydantic turns into these whatever is raised while it reads attributes or writes JSON.
            if self._suspension is not None:
                return self._suspension.with_traceback(None)
            if self._failure is not None and InvocationError.__name__ in str(error):
                raise self._failure from error
            raise
        except BaseException as error:
            self._check_not_swallowed(error)
            if isinstance(error, Exception):
                raise
            raise AbortedError(task, error) from error  # such an error would end the whole process
        finally:
            _current.reset(token)
        self._check_not_swallowed()
        if self._position < len(self.invocations):
            raise DivergenceError(task, self._position, "it ended before this invocation was repeated")
        return result

    def close(self) -> None:
        """Nothing more is played. Outputs that are still pending know the recording, which is a circle."""
        for invocation in self.invocations:
            del invocation.output
        self.invocations = []

    def _check_not_swallowed(self, cause: BaseException | None = None) -> None:
        if self._suspension is not None:
            raise SwallowedSuspensionError(self._task, self._suspension.invocation, self._suspension.field) from cause

    def invoke(self, task: UnitTask[Any, Any], request: Any) -> Any:
        """Repeats the next recorded invocation, or records a new one."""
        self._check_not_swallowed()
        index = self._position
        edges = ReferenceEncoder()
        body = task.encode(request, edges)
        self._position += 1
        if index < len(self.invocations):
            return self._repeat(self.invocations[index], task, body, edges.inputs)
        if index >= self._max_invocations:
            raise TooManyInvocationsError(self._task, self._max_invocations)
        return self._record(Invocation(index, task, body, tuple(edges.inputs)))

    def _record(self, invocation: Invocation) -> Output:
        def demand(field: str | None) -> Any:
            if _current.get(None) is not self:
                raise OutsideRequestError(f"a value of {invocation.task.name}'s output was read")
            self._check_not_swallowed()
            try:
                return invocation.read(field)
            except Suspension as suspension:
                self._suspension = suspension
                raise
            except InvocationError as failure:
                self._failure = failure
                raise

        layout = invocation.task.layout
        references: dict[str, Tensor | Stream[Any]] = {
            name: Tensor(Origin(invocation.index, name)) for name in layout.tensors
        }
        for name in layout.streams:
            references[name] = self._stream(Origin(invocation.index, name))
        invocation.output = pending(invocation.task.output_type, references, demand)
        self.invocations.append(invocation)
        return invocation.output

    def _stream(self, origin: Origin) -> Stream[Any]:
        open_stream = self._open_stream
        return Stream(origin, None if open_stream is None else lambda: open_stream(origin))

    def _repeat(
        self, recorded: Invocation, task: UnitTask[Any, Any], request: bytes, inputs: Sequence[Origin | Blob]
    ) -> Output:
        if recorded.task is not task and recorded.task.key != task.key:
            raise DivergenceError(task.name, recorded.index, f"it was {recorded.task.name} when it was recorded")
        if recorded.request != request or recorded.inputs != tuple(inputs):
            raise DivergenceError(task.name, recorded.index, "its input is another than when it was recorded")
        return recorded.output


_current: ContextVar[Recording] = ContextVar("recording")


def current(what: str) -> Recording:
    """The recording of the request that is being played; `what` names the caller in the error if there is none."""
    recording = _current.get(None)
    if recording is None:
        raise OutsideRequestError(what)
    return recording


def replayable_choice(n: int, p: Sequence[float] | None = None) -> int:
    """A random index below `n` that is the same in every replay [C Listing 2].

    Args:
        p: weights of the `n` alternatives; by default, all are equally likely.
    """
    if n < 1:
        raise ValueError(f"there is nothing to choose among {n} alternatives")
    if p is not None and len(p) != n:
        raise ValueError(f"{n} alternatives need {n} probabilities, not {len(p)}")
    return current("replayable_choice was called").draws.choose([1.0] * n if p is None else p)
