"""Record and replay of one request [C §5.2], with values on demand.

`Recording.run` runs the code of a task from its start. It returns the output of invocations that an earlier run
recorded, and records new ones. It ends with the code's result, or with a `Suspension` if the code reads a value that is
not available yet. The caller then dispatches the new invocations, stores their results in them, and runs the code
again. A recording that resumes its code does not run it again: the code waits for the value, and runs on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from cornserve.task.active_recording import active_recording
from cornserve.task.divergence import added_call, calling_line, changed_arguments, changed_input, changed_task
from cornserve.task.errors import (
    AbortedError,
    DivergenceError,
    InvocationError,
    OutputSuspension,
    OutsideRequestError,
    SideEffectSuspension,
    Suspension,
    SwallowedSuspensionError,
    TensorStreamError,
    TooManyInvocationsError,
)
from cornserve.task.output import Output, complete_output, pending_output, references_of, release_output
from cornserve.task.references import Blob, Origin, ReferenceEncoder, Stream, Tensor, TensorReference, TensorStream
from cornserve.task.side_effect_call import SideEffectCall
from cornserve.task.side_effects import SideEffect, SideEffectResult
from cornserve.task.suspendable_code import SuspendableCode
from cornserve.task.unit import UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_policies.replayable_random import ReplayableRandom

T = TypeVar("T")

DEFAULT_MAX_INVOCATIONS = 256


class OpenStream(Protocol):
    """Opens a stream output: yields its items from the first one, in batches of the items that have arrived."""

    def __call__(self, origin: Origin) -> AsyncIterator[Sequence[Any]]: ...


class Invocation:
    """One call of a unit task: its input, and the part of its output that is available."""

    __slots__ = (
        "_early_values",
        "ended",
        "error",
        "index",
        "inputs",
        "line",
        "origins",
        "output",
        "request",
        "size",
        "task",
    )

    def __init__(
        self,
        index: int,
        task: UnitTask[Any, Any],
        request: bytes,
        inputs: tuple[Origin | Blob, ...],
        size: InputSize,
        line: str,
    ) -> None:
        self.index = index
        self.task = task
        self.request = request
        """The input as JSON, with `{"$input": n}` for the n-th of `inputs`."""
        self.inputs = inputs
        self.size = size
        self.line = line
        """The line of the app that makes the call, such as "app.py:12"."""
        self.origins = frozenset(value for value in inputs if isinstance(value, Origin))
        """The outputs of other invocations among the inputs."""
        self.output: Output
        """Pending until the invocation ends."""
        self.ended = False
        self.error: InvocationError | None = None
        self._early_values: dict[str, Any] = {}

    @property
    def task_name(self) -> str:
        return self.task.name

    @property
    def executor_key(self) -> str:
        return self.task.key

    @property
    def stream_names(self) -> Collection[str]:
        return self.task.layout.streams

    @property
    def has_tensors(self) -> bool:
        return self.task.layout.has_tensors

    @property
    def tensor_stream_names(self) -> Collection[str]:
        return self.task.layout.tensor_streams

    @property
    def has_values(self) -> bool:
        return bool(self.task.layout.values)

    @property
    def has_only_tensor_streams(self) -> bool:
        """Whether the output has no other fields than streams of tensors."""
        layout = self.task.layout
        return bool(layout.tensor_streams) and not (layout.tensors or layout.streams or layout.values)

    @property
    def is_continuable(self) -> bool:
        """Whether another executor can continue the streams exactly."""
        return self.task.continues(self.task.decode(self.request, self.inputs))

    @property
    def reported_usage(self) -> object:
        """The field `usage` of the complete output, if it has one."""
        return vars(self.output).get("usage")

    def load_item(self, stream: str, item: bytes) -> Any:
        """Returns the item of a stream from its JSON. Raises KeyError or ValidationError."""
        return self.task.layout.streams[stream].validator.validate_json(item)

    def dump_item(self, stream: str, item: Any) -> bytes:
        """Returns the item of a stream as JSON."""
        return self.task.layout.streams[stream].dump_json(item)

    def set_value(self, field: str, value: bytes) -> None:
        """Stores a value, given as JSON, that is available before the invocation ends."""
        self._early_values[field] = self.task.layout.values[field].validate_json(value)

    def finish(self, values: bytes) -> None:
        """Stores the remaining values, given as a JSON object. Raises ValueError if the output is not valid."""
        fields = from_json(values) if values else {}
        if not isinstance(fields, dict):
            raise ValueError("the values are not a JSON object")
        references = references_of(self.output)
        complete = self.task.output_type.model_validate(fields | self._early_values | references)
        complete_output(self.output, vars(complete))  # Code may have kept it.
        self.ended = True

    def fail(self, code: str, message: str) -> None:
        self.fail_with(InvocationError(self.task.name, self.index, code, message))

    def fail_with(self, error: InvocationError) -> None:
        self.error = error
        self.ended = True

    def release_output(self) -> None:
        """Makes the output raise an error if code has kept it."""
        release_output(self.output)

    def free_output(self) -> None:
        """Breaks the reference cycle between the pending output and the recording."""
        del self.output

    @property
    def has_early_values(self) -> bool:
        """Whether a value arrived before the invocation ended."""
        return bool(self._early_values)

    def has_value(self, field: str | None) -> bool:
        """Returns whether reading `field` (all values if None) returns a value or raises the invocation's error."""
        return self.ended or field in self._early_values

    def read_value(self, field: str | None) -> Any:
        """Returns an available value for the pending output. Raises the invocation's error."""
        if field in self._early_values:
            return self._early_values[field]
        if self.error is not None:
            raise self.error.with_traceback(None)  # each replay raises it, and would lengthen its traceback
        fields = vars(self.output)
        return fields if field is None else fields[field]


class Recording:
    """The invocations of one request, in the order in which its task calls them.

    Args:
        on_record: is called with each new invocation. It may set results that are already available.
        resumes: whether the next run continues code that waits for a value. Otherwise, it repeats the code.
    """

    def __init__(
        self,
        random: ReplayableRandom,
        *,
        open_stream: OpenStream | None = None,
        on_record: Callable[[Invocation], None] | None = None,
        max_invocations: int = DEFAULT_MAX_INVOCATIONS,
        resumes: bool = False,
    ) -> None:
        self.invocations: list[Invocation] = []
        self.side_effects: list[SideEffectResult] = []
        """The results of the calls with side effects, in the order of the calls."""
        self.next_side_effect: SideEffect | None = None
        """The call for which the last run waits."""
        self._last_awaited_side_effect: SideEffect | None = None
        """The call for which the run before the current one waited."""
        self._on_record = on_record
        self.random = random
        self._first_random_index = random.index
        self._open_stream = open_stream
        self._max_invocations = max_invocations
        self._position = 0
        self._side_effect_position = 0
        self._consumed_streams: set[Origin] = set()
        """The streams of tensors that have a consumer."""
        self._task = ""
        self._refuses_new_calls = False
        """Whether the code must make the calls of the last run only."""
        self._has_ended = False
        """Whether a run has ended with the result of the code."""
        self._on_yield: Callable[[Any], None] | None = None
        self._suspension: Suspension | None = None
        self._failure: InvocationError | None = None
        self._resumes = resumes
        self._suspended: SuspendableCode[Any] | None = None
        """The code that runs, or waits for a value, if it can be resumed."""

    def run(
        self,
        task: str,
        code: Callable[[], T],
        on_yield: Callable[[Any], None] | None = None,
        *,
        repeats: bool = False,
        continues: bool = False,
    ) -> T | Suspension:
        """Runs `code` from its start, or from where it waits for a value.

        Args:
            task: names the code in errors.
            on_yield: is called with each value that `code` yields. A repeated run yields its values again.
            repeats: whether this run starts again with the values of the last one, so that further calls are a
                divergence. They also are one after a run that has ended with a result.
            continues: whether `code` begins where the last run has ended with a result, so that it repeats no calls.

        Returns the result of `code`, or a suspension with the value that it waits for. Raises the exceptions of `code`,
        and `TaskError`.
        """
        self._last_awaited_side_effect, self.next_side_effect = self.next_side_effect, None
        if self._suspended is None:
            self._begin(task, on_yield, refuses_new_calls=repeats or self._has_ended, continues=continues)
        try:
            result = self._run_on(code) if self._resumes else self._run(code)
        except Suspension as suspension:
            return suspension.with_traceback(None)  # see `cornserve.tracebacks`
        except (ValidationError, PydanticSerializationError) as error:
            # pydantic replaces exceptions that are raised while it reads attributes or writes JSON.
            if self._suspension is not None:
                return self._suspension.with_traceback(None)
            if self._failure is not None and InvocationError.__name__ in str(error):
                raise self._failure from error
            raise
        except BaseException as error:
            self._check_not_swallowed(error)
            if isinstance(error, Exception):
                raise
            raise AbortedError(task, error) from error  # the error itself would end the process
        if isinstance(result, Suspension):
            return result
        self._check_not_swallowed()
        if self._position < len(self.invocations):
            missing = self.invocations[self._position]
            message = f"it ended before it repeated the call of {missing.task.name} at {missing.line}"
            raise DivergenceError(task, self._position, message)
        if self._side_effect_position < len(self.side_effects):
            missing_call = self.side_effects[self._side_effect_position].call
            message = f"it ended before it repeated the recorded call of {missing_call.function} at {missing_call.line}"
            raise DivergenceError(task, None, message)
        self._has_ended = True
        return result

    def _begin(
        self, task: str, on_yield: Callable[[Any], None] | None, *, refuses_new_calls: bool, continues: bool
    ) -> None:
        if not continues:
            self._position = self._side_effect_position = 0
            self.random.index = self._first_random_index
        self._task = task
        self._on_yield = on_yield
        self._refuses_new_calls = refuses_new_calls
        self._suspension = self._failure = None

    def _run(self, code: Callable[[], T]) -> T:
        token = active_recording.set(self)
        try:
            return code()
        finally:
            active_recording.reset(token)

    def _run_on(self, code: Callable[[], T]) -> T | Suspension:
        """Runs the suspended code, or else `code`, until it ends or waits for a value."""
        if self._suspended is None:
            self._suspended = SuspendableCode(partial(self._run, code))
        running: SuspendableCode[T] = self._suspended
        try:
            return running.run()
        finally:
            if running.has_ended:
                self._suspended = None

    def _suspend(self, suspension: Suspension) -> None:
        """Waits for the next run, or ends this one by raising the suspension."""
        if self._suspended is not None:
            if not self._suspended.is_current:
                raise OutsideRequestError(f"{suspension.awaited} was awaited by other code")
            self._suspended.suspend(suspension)
            return
        self._suspension = suspension
        raise suspension

    def release_outputs(self) -> None:
        """Ends suspended code, and makes the outputs raise an error if code has kept them."""
        self._end_code()
        for invocation in self.invocations:
            invocation.release_output()

    def close(self) -> None:
        """Ends suspended code, and frees the invocations and their outputs."""
        self._end_code()
        for invocation in self.invocations:
            invocation.free_output()
        self.invocations = []

    def _end_code(self) -> None:
        if self._suspended is not None:
            self._suspended.close()
            self._suspended = None

    def _check_not_swallowed(self, cause: BaseException | None = None) -> None:
        if self._suspension is not None:
            raise SwallowedSuspensionError(self._task, self._suspension.awaited) from cause

    def invoke(self, task: UnitTask[Any, Any], request: Any) -> Any:
        """Repeats the next recorded invocation, or records a new one. Returns its output."""
        self._check_not_swallowed()
        index = self._position
        encoder = ReferenceEncoder()
        body = task.encode(request, encoder)
        self._position += 1
        if index < len(self.invocations):
            return self._repeat(self.invocations[index], task, body, encoder.inputs)
        if self._refuses_new_calls:
            raise DivergenceError(self._task, index, added_call(task.name, _line()))
        if index >= self._max_invocations:
            raise TooManyInvocationsError(self._task, self._max_invocations)
        self._consume_streams(task, encoder.inputs)
        return self._record(Invocation(index, task, body, tuple(encoder.inputs), task.size(request), _line()))

    def run_once(self, name: str, arguments: bytes, function: Callable[[], Any]) -> Any:
        """Returns the value of a call that has run. Otherwise, the call is `next_side_effect`."""
        self._check_not_swallowed()
        call = SideEffectCall(name, _line(), arguments)
        index = self._side_effect_position
        self._side_effect_position += 1
        if index == len(self.side_effects) and self._refuses_new_calls:
            self._check_awaited(call)
        while index == len(self.side_effects):
            self.next_side_effect = SideEffect(call, function)
            self._suspend(SideEffectSuspension(call))
        result = self.side_effects[index]
        self._check_repeated(result.call, call)
        return result.read()

    def _check_awaited(self, call: SideEffectCall) -> None:
        """Raises `DivergenceError` if the last run did not wait for the call."""
        if self._last_awaited_side_effect is None:
            raise DivergenceError(self._task, None, added_call(call.function, call.line))
        self._check_repeated(self._last_awaited_side_effect.call, call)

    def _check_repeated(self, recorded: SideEffectCall, call: SideEffectCall) -> None:
        """Raises `DivergenceError` if a call with side effects differs from the recorded one."""
        if recorded.function != call.function:
            message = changed_task(recorded.function, recorded.line, call.function, call.line)
            raise DivergenceError(self._task, None, message)
        if recorded.arguments != call.arguments:
            message = changed_arguments(call.function, recorded.arguments, recorded.line, call.arguments, call.line)
            raise DivergenceError(self._task, None, message)

    def record_yield(self, value: Any) -> None:
        self._check_not_swallowed()
        if self._on_yield is not None:
            self._on_yield(value)

    def _consume_streams(self, task: UnitTask[Any, Any], inputs: Sequence[Origin | Blob]) -> None:
        """Marks the streams of tensors among the inputs. Raises `TensorStreamError` if one has a consumer already."""
        consumed: set[Origin] = set()
        for origin in inputs:
            if not isinstance(origin, Origin):
                continue
            if origin.output not in self.invocations[origin.invocation].tensor_stream_names:
                continue
            if origin in self._consumed_streams or origin in consumed:
                raise TensorStreamError(task.name, *origin, "a TensorStream has one consumer, which reads it once")
            consumed.add(origin)
        self._consumed_streams |= consumed

    def _record(self, invocation: Invocation) -> Output:
        def read_value(field: str | None) -> Any:
            if active_recording.get(None) is not self:
                raise OutsideRequestError(f"a value of {invocation.task.name}'s output was read")
            self._check_not_swallowed()
            while not invocation.has_value(field):
                self._suspend(OutputSuspension(invocation.index, field))
            try:
                return invocation.read_value(field)
            except InvocationError as failure:
                self._failure = failure
                raise

        layout = invocation.task.layout
        references: dict[str, TensorReference | Stream[Any]] = {
            name: Tensor(Origin(invocation.index, name)) for name in layout.tensors
        }
        for name in layout.tensor_streams:
            references[name] = TensorStream(Origin(invocation.index, name))
        for name in layout.streams:
            references[name] = self._stream(Origin(invocation.index, name))
        invocation.output = pending_output(invocation.task.output_type, references, read_value)
        self.invocations.append(invocation)
        if self._on_record is not None:
            self._on_record(invocation)
        return invocation.output

    def _stream(self, origin: Origin) -> Stream[Any]:
        open_stream = self._open_stream
        return Stream(origin, None if open_stream is None else lambda: open_stream(origin))

    def _repeat(
        self, recorded: Invocation, task: UnitTask[Any, Any], request: bytes, inputs: Sequence[Origin | Blob]
    ) -> Output:
        if recorded.task is not task and recorded.task.key != task.key:
            message = changed_task(recorded.task.name, recorded.line, task.name, _line())
            raise DivergenceError(task.name, recorded.index, message)
        if recorded.request != request or recorded.inputs != tuple(inputs):
            message = changed_input(recorded.request, recorded.line, request, _line())
            raise DivergenceError(task.name, recorded.index, message)
        return recorded.output


def _line() -> str:
    return calling_line(Recording.run.__code__)
