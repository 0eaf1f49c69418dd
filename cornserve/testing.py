"""Runs tasks in tests, without executors, processes and network.

    def test_a_caption_names_the_image() -> None:
        run = run_task(Caption(), CaptionRequest(), lambda task, request: {"text": "a cat"})
        assert run.response.text == "a cat"

The task runs as in service: it is recorded up to the first value that it waits for, and replayed with the outputs of
its unit tasks, until it ends [C §5.2]. Another replay at the end shows whether it depends on anything but its request.
Functions that it calls with `recorded` run once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from cornserve.task.base import Task
from cornserve.task.errors import Suspension
from cornserve.task.output import Output, output_layout
from cornserve.task.recording import DEFAULT_MAX_INVOCATIONS, Invocation, Recording
from cornserve.task.references import Origin, Stream
from cornserve.task.unit import UnitTask
from cornserve.validation_errors import describe_all
from cornserve_policies.replayable_random import ReplayableRandom

Request = TypeVar("Request")
Response = TypeVar("Response")
Item = TypeVar("Item")


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
        play: the number of the run of `invoke` that has recorded the call, from 0. Calls of one play run concurrently,
            as far as they do not need outputs of each other.
        line: the line of the app that makes the call, such as "app.py:12".
    """

    task: UnitTask[Any, Any]
    request: Any
    play: int
    line: str


@dataclass(frozen=True, slots=True)
class TaskRun(Generic[Response]):
    """A finished run.

    Args:
        calls: the calls of unit tasks, in order.
        yielded: the values and streams that `invoke` has yielded, in order, if it is a generator.
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
        TaskError: the task would fail in service too, for example because a replay differs.
    """
    calls: list[RecordedCall] = []
    items: dict[Origin, list[Any]] = {}
    recording = Recording(
        ReplayableRandom(request_id), open_stream=partial(_read_items, items), max_invocations=max_invocations
    )
    respond = partial(_respond, task, request)
    ended = False
    for number in count():
        yielded: list[Any] = []
        outcome = recording.play(task.name, respond, yielded.append)
        if recording.next_side_effect is not None:
            recording.side_effects.append(recording.next_side_effect.run())
        if ended and not isinstance(outcome, Suspension):
            return TaskRun(outcome, calls, yielded)
        ended = not isinstance(outcome, Suspension)
        for invocation in recording.invocations[len(calls) :]:
            decoded = invocation.task.decode(invocation.request, invocation.inputs)
            call = RecordedCall(invocation.task, decoded, number, invocation.line)
            calls.append(call)
            on_call(call)
            _finish(invocation, answer(call.task, call.request), items)
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


def _respond(task: Task[Any, Any], request: Any) -> Any:
    """Returns the response, after all of its values have been read, as the gateway does."""
    response = task.respond(request)
    TypeAdapter(task.response_type).dump_python(response)
    return response


async def _read_items(items: Mapping[Origin, list[Any]], origin: Origin) -> AsyncIterator[Sequence[Any]]:
    yield items[origin]


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
