"""Runs tasks in tests, without executors, processes and network.

    def test_a_caption_names_the_image() -> None:
        run = run_task(Caption(), CaptionRequest(), lambda task, request: {"text": "a cat"})
        assert run.response.text == "a cat"

The task runs as in service: it is recorded up to the first value that it waits for, and replayed with the outputs of
its unit tasks, until it ends [C §5.2]. Each run is repeated with the same outputs, which shows whether the task depends
on anything but its request. Functions that it calls with `recorded` run once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from cornserve.app.operations import supported_operations
from cornserve.app.response_readers import CHUNKS, STREAMS, YieldReader, encode_item
from cornserve.task.annotations import classes_of
from cornserve.task.base import Task
from cornserve.task.divergence import changed_end
from cornserve.task.errors import DivergenceError, Suspension
from cornserve.task.output import Output, output_layout
from cornserve.task.recording import DEFAULT_MAX_INVOCATIONS, Invocation, Recording
from cornserve.task.references import Origin, Stream, TensorReference
from cornserve.task.unit import UnitTask
from cornserve.validation_errors import describe_all
from cornserve_policies.replayable_random import ReplayableRandom

Request = TypeVar("Request")
Response = TypeVar("Response")
Item = TypeVar("Item")
T = TypeVar("T")


class AnswerError(ValueError):
    """The answer of a test for a unit task is not an output of the task."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """The answer for a unit task that fails: reading its output raises an `InvocationError`.

    Args:
        message: the message of the executor.
        code: a code of the executor contract, such as "INVALID_ARGUMENT" or "UNAVAILABLE".
    """

    message: str
    code: str = "INTERNAL"


Answer = Output | Mapping[str, Any] | CallFailure
"""The output of a unit task without streams, or its fields: values, and the items of streams as lists. Tensors are left
out."""

AnswerCall = Callable[["UnitTask[Any, Any]", Any], Answer]
"""Returns the answer for a unit task and its request."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a unit task.

    Args:
        request: the input as the executor receives it. Its tensors and streams are references.
        round: the number of the run of `invoke` that has recorded the call, from 1. Calls of one round run
            concurrently, as far as they do not need outputs of each other.
        line: the line of the app that makes the call, such as "app.py:12".
    """

    task: UnitTask[Any, Any]
    request: Any
    round: int
    line: str


@dataclass(frozen=True, slots=True)
class TaskRun(Generic[Response]):
    """A finished run.

    Args:
        response: a copy of the response, which stays valid, unlike the outputs that the task has received. Its streams
            have all of their items.
        calls: the calls of unit tasks, in order.
        yielded: copies of the values and streams that `invoke` has yielded, in order, if it is a generator.
    """

    response: Response
    calls: Sequence[RecordedCall]
    yielded: Sequence[Any] = ()

    def calls_of(self, task: str) -> list[RecordedCall]:
        """Returns the calls of the unit tasks with this class name."""
        return [call for call in self.calls if call.task.name == task]


def run_task(
    task: Task[Request, Response],
    request: Request,
    answer: AnswerCall,
    *,
    request_id: str = "test",
    max_invocations: int = DEFAULT_MAX_INVOCATIONS,
    on_call: Callable[[RecordedCall], object] = lambda call: None,
) -> TaskRun[Response]:
    """Runs a task with the outputs that `answer` returns.

    Args:
        task: a composite task, or a unit task.
        request_id: determines the random choices of the task.
        max_invocations: the limit of the app.
        on_call: receives each call before its answer, also those of a run that fails.
    Raises:
        AnswerError: `answer` has returned something else than an output of the unit task.
        TypeError: the request is not of the task's request type.
        TaskError: the task would fail in service too, for example because a replay differs.
    """
    _check_request(task, request)
    items: dict[Origin, list[Any]] = {}
    recording: Recording = Recording(
        ReplayableRandom(request_id),
        open_stream=lambda origin: _read_items(recording.invocations[origin.invocation], items.get(origin, ())),
        max_invocations=max_invocations,
    )
    try:
        return _run(recording, task, request, answer, items, on_call)
    finally:
        recording.release_outputs()
        recording.close()


def _run(
    recording: Recording,
    task: Task[Request, Response],
    request: Request,
    answer: AnswerCall,
    items: dict[Origin, list[Any]],
    on_call: Callable[[RecordedCall], object],
) -> TaskRun[Response]:
    calls: list[RecordedCall] = []
    yields = _Yields(task)
    respond = partial(_respond, task, request, yields.values)
    for number in count(1):
        outcome = recording.run(task.name, respond, yields.start_run())
        side_effect, new = recording.next_side_effect, recording.invocations[len(calls) :]
        for invocation in new:
            decoded = invocation.task.decode(invocation.request, invocation.inputs)
            calls.append(RecordedCall(invocation.task, decoded, number, invocation.line))
            on_call(calls[-1])
        _check_same_end(task, outcome, recording.run(task.name, respond, yields.start_run(), repeats=True))
        if side_effect is not None:
            recording.side_effects.append(side_effect.run())
        for invocation in new:
            call = calls[invocation.index]
            _finish(invocation, answer(call.task, call.request), items)
        if not isinstance(outcome, Suspension):
            response, yielded = _copy_with_items((outcome, yields.values))
            return TaskRun(response, calls, yielded)
    raise AssertionError("unreachable")


def stream_items(stream: Stream[Item]) -> list[Item]:
    """Returns the items of a stream in a response, after the functions that are mapped over it."""

    async def collect() -> list[Item]:
        return [item async for item in stream]

    try:
        collect().send(None)  # All items are known, so it runs to its end.
    except StopIteration as end:
        found: list[Item] = end.value
        return found
    raise AssertionError("the stream waits for items")


class _Yields:
    """The values that a task yields: those that the first run with them has yielded, as clients receive them."""

    def __init__(self, task: Task[Any, Any]) -> None:
        self.values: list[Any] = []
        self._reader = _yield_reader(task)

    def start_run(self) -> Callable[[Any], None]:
        """Returns the function that receives the values of a run. Clients that stream would receive its errors."""
        numbers = count()

        def add(value: Any) -> None:
            read = self._reader.read(value)
            if not isinstance(read, Stream):
                for item in read:
                    encode_item(item)
            if next(numbers) == len(self.values):
                self.values.append(value)

        return add


def _yield_reader(task: Task[Any, Any]) -> YieldReader[Any]:
    """Returns the reader of the yielded values of a streamed chat, or of a streamed native call of other tasks."""
    operations = supported_operations(task.request_types(), task.response_type)
    reader = STREAMS if operations.isdisjoint(("chat", "completion")) else CHUNKS
    assert reader.yields is not None
    return reader.yields


def _check_request(task: Task[Any, Any], request: object) -> None:
    expected = classes_of(task.request_type)
    if expected and not isinstance(request, expected):
        names = " or ".join(kind.__name__ for kind in expected)
        raise TypeError(f"{task.name} takes the type {names}, not {type(request).__name__}")


def _respond(task: Task[Any, Any], request: Any, yielded: Sequence[Any]) -> Any:
    """Returns the response, after its values, as in the gateway, and those of all that is yielded have been read.

    Raises `PydanticSerializationError` if the response cannot be written as JSON.
    """
    response = task.respond(request)
    TypeAdapter(task.response_type).dump_python(response, mode="json")
    _ANY.dump_python(yielded)
    return response


_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def _check_same_end(task: Task[Any, Any], outcome: object, repeated: object) -> None:
    """Raises `DivergenceError` if the repeated run waits for another value, or returns another type."""
    end, repeated_end = _describe_end(outcome), _describe_end(repeated)
    if end != repeated_end:
        raise DivergenceError(task.name, None, changed_end(end, repeated_end))


def _describe_end(outcome: object) -> str:
    if isinstance(outcome, Suspension):
        return f"waited for {outcome.awaited}"
    return f"returned a value of the type {type(outcome).__name__}"


def _copy_with_items(value: T) -> T:
    """Returns a copy that outlives the outputs in it. Its streams have read all of their items.

    Raises `PydanticSerializationError` if an item cannot be written as JSON.
    """
    references: dict[int, Any] = {
        id(reference): _copy_reference(reference)
        for reference in _references_in(_ANY.dump_python(value, warnings=False))
    }
    return deepcopy(value, references)


def _copy_reference(reference: TensorReference | Stream[Any]) -> TensorReference | Stream[Any]:
    if isinstance(reference, TensorReference):
        return type(reference)(reference.origin)
    if not reference.is_open:
        return reference
    items = stream_items(reference)
    for item in items:
        encode_item(item)
    return Stream(reference.origin, partial(_read_batch, items))


def _references_in(dumped: Any) -> Iterator[TensorReference | Stream[Any]]:
    match dumped:
        case TensorReference() | Stream():
            yield dumped
        case dict():
            yield from _references_in(list(dumped.values()))
        case list() | tuple():
            for item in dumped:
                yield from _references_in(item)


async def _read_batch(items: Sequence[Any]) -> AsyncIterator[Sequence[Any]]:
    yield items


async def _read_items(invocation: Invocation, items: Sequence[Any]) -> AsyncIterator[Sequence[Any]]:
    yield items
    if invocation.error is not None:
        raise invocation.error.with_traceback(None)  # each reader raises it, and would lengthen its traceback


def _finish(invocation: Invocation, answer: Answer, items: dict[Origin, list[Any]]) -> None:
    """Stores the answer in the invocation. Raises `AnswerError`."""
    if isinstance(answer, CallFailure):
        invocation.fail(answer.code, answer.message)
        return
    layout, name = invocation.task.layout, invocation.task.name
    fields = _fields(answer, name)
    if unknown := sorted(fields.keys() - layout.values.keys() - layout.streams.keys()):
        known = ", ".join([*layout.values, *layout.streams]) or "no values and streams"
        raise AnswerError(f"{name} has no output {unknown[0]!r} that a test can give: its outputs are {known}")
    try:
        for stream, adapter in layout.streams.items():
            given = fields.pop(stream, [])
            items[Origin(invocation.index, stream)] = [adapter.validate_python(item) for item in given]
        invocation.finish(to_json(fields))
    except ValidationError as error:
        raise AnswerError(f"the answer for {name} is not valid: {describe_all(error.errors())}") from None


def _fields(answer: Answer, name: str) -> dict[str, Any]:
    """Returns the fields of the answer. An output object has its values only."""
    if isinstance(answer, Mapping):
        return dict(answer)
    if not isinstance(answer, Output):
        raise AnswerError(f"the answer for {name} is {answer!r}: return its output, a dict of fields or a CallFailure")
    return {field: vars(answer)[field] for field in output_layout(type(answer)).values}
