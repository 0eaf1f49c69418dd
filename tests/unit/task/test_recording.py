"""Record and replay of composite tasks."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError, field_validator

from cornserve import InvocationError, Task, Tensor, TensorStream, replayable_choice
from cornserve.task.divergence import first_difference
from cornserve.task.errors import (
    AbortedError,
    DivergenceError,
    OutputSuspension,
    OutsideRequestError,
    Suspension,
    SwallowedSuspensionError,
    TensorStreamError,
    TooManyInvocationsError,
)
from cornserve.task.recording import Recording
from cornserve.task.references import Origin
from cornserve_echo.dictation import SpeakRequest, SpeakTask, WriteRequest, WriteTask, Written
from cornserve_policies.replayable_random import ReplayableRandom
from tests.unit.task.shout_task import Shout, ShoutOutput, ShoutRequest, finish, record, run

shout = Shout()


def test_independent_invocations_are_recorded_together() -> None:
    def code() -> list[str]:
        outputs = [shout.invoke(ShoutRequest(text=word)) for word in ("a", "b", "c")]
        return [output.text for output in outputs]

    result, runs = run(code)

    assert result == ["A", "B", "C"]
    assert runs == [[0, 1, 2]]


def test_reading_a_value_suspends_the_code() -> None:
    outcome, recording = record(lambda: shout.invoke(ShoutRequest(text="a")).length)

    assert isinstance(outcome, OutputSuspension)
    assert (outcome.invocation, outcome.field) == (0, "length")
    assert len(recording.invocations) == 1


def test_branches_and_loops_can_depend_on_values() -> None:
    def code() -> str:
        output = shout.invoke(ShoutRequest(text="x"))
        while len(output.text) < 3:
            output = shout.invoke(ShoutRequest(text=output.text + "x"))
        return output.text if output.text.isupper() else "never"

    result, runs = run(code)

    assert result == "XXX"
    assert runs == [[0], [1], [2]]


def test_passing_a_tensor_records_an_edge_without_suspending() -> None:
    def code() -> ShoutOutput:
        first = shout.invoke(ShoutRequest(text="a"))
        return shout.invoke(ShoutRequest(text="b", embedding=first.embedding))

    outcome, recording = record(code)

    assert isinstance(outcome, ShoutOutput)
    assert recording.invocations[1].inputs == (Origin(0, "embedding"),)
    assert json.loads(recording.invocations[1].request) == {"text": "b", "embedding": {"$input": 0}}


def test_a_stream_of_tensors_has_one_consumer() -> None:
    def code(*, consumers: int) -> Written:
        words = SpeakTask().invoke(SpeakRequest(text="a")).words
        return [WriteTask().invoke(WriteRequest(words=words)) for _ in range(consumers)][-1]

    outcome, recording = record(lambda: code(consumers=1))

    assert isinstance(outcome, Written)
    assert recording.invocations[1].inputs == (Origin(0, "words"),)
    with pytest.raises(TensorStreamError, match=r"WriteTask cannot read the stream 'words' .* one consumer"):
        record(lambda: code(consumers=2))


def test_a_stream_of_tensors_is_not_a_tensor() -> None:
    words, embedding = TensorStream(Origin(0, "words")), Tensor(Origin(0, "embedding"))

    with pytest.raises(ValidationError, match="expected a TensorStream, not a Tensor"):
        WriteRequest(words=embedding)  # type: ignore[arg-type]  # the error is tested
    with pytest.raises(ValidationError, match="expected a Tensor, not a TensorStream"):
        ShoutRequest(text="a", embedding=words)  # type: ignore[arg-type]


def test_a_stream_is_returned_without_suspending() -> None:
    outcome, _ = record(lambda: shout.invoke(ShoutRequest(text="a")).words)

    assert not isinstance(outcome, Suspension)


async def test_a_mapped_stream_yields_mapped_items() -> None:
    async def items(origin: Origin) -> Any:
        yield ["one", "two"]
        yield ["three"]

    recording = Recording(ReplayableRandom("r"), open_stream=items)
    stream = recording.run("Calls", lambda: shout.invoke(ShoutRequest(text="a")).words.map(str.upper).map(len))

    assert not isinstance(stream, Suspension)
    assert [item async for item in stream] == [3, 3, 5]
    assert [list(batch) async for batch in stream.batches()] == [[3, 3], [5]]


async def test_a_mapped_stream_yields_the_items_before_an_error() -> None:
    async def items(origin: Origin) -> Any:
        yield ["3", "4", "five", "6"]

    recording = Recording(ReplayableRandom("r"), open_stream=items)
    stream = recording.run("Calls", lambda: shout.invoke(ShoutRequest(text="a")).words.map(int))

    assert not isinstance(stream, Suspension)
    items_read = aiter(stream)
    assert [await anext(items_read), await anext(items_read)] == [3, 4]
    with pytest.raises(ValueError, match="five"):
        await anext(items_read)


def test_a_stream_cannot_be_iterated_inside_invoke() -> None:
    with pytest.raises(TypeError, match="cannot be iterated inside"):
        record(lambda: list(shout.invoke(ShoutRequest(text="a")).words))


class OutputHolder(BaseModel):
    output: ShoutOutput


class Judgement(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def _is_plain(cls, text: str) -> str:
        assert type(text) is str
        return text


@pytest.mark.parametrize(
    "use",
    [
        lambda output: json.loads(f'"{output.text}"'),
        lambda output: re.fullmatch(".*", output.text)[0],  # type: ignore[index]
        lambda output: f"{output.text}",
        lambda output: "".join(list(output.text)),
        lambda output: Judgement(text=output.text).text,
        lambda output: output.model_dump()["text"],
        lambda output: json.loads(output.model_dump_json())["text"],
        lambda output: dict(output)["text"],
        lambda output: vars(output)["text"],
        lambda output: output.model_copy(update={"length": 0}).text,
    ],
    ids=["json", "re", "f-string", "join", "validator", "model_dump", "model_dump_json", "iter", "vars", "copy"],
)
def test_values_are_plain_values_and_not_proxies(use: Callable[[ShoutOutput], object]) -> None:
    def code() -> object:
        try:
            return use(shout.invoke(ShoutRequest(text="plain")))
        except TypeError as error:  # A proxy object would raise.
            return error

    result, _ = run(code)

    assert result == "PLAIN"
    assert type(result) is str


@pytest.mark.parametrize("outcome", [lambda output: hasattr(output, "txet"), lambda output: getattr(output, "txet", 0)])
def test_a_missing_attribute_of_a_pending_output_raises_without_suspending(
    outcome: Callable[[ShoutOutput], object],
) -> None:
    result, _ = record(lambda: outcome(shout.invoke(ShoutRequest(text="a"))))

    assert result in (False, 0)


@pytest.mark.parametrize(
    "use",
    [
        lambda output: output == shout.invoke(ShoutRequest(text="b")),
        lambda output: output.model_fields_set,
        lambda output: copy.deepcopy(output).text,
        lambda output: TypeAdapter(Judgement).validate_python(output, from_attributes=True).text,
        repr,
        str,
    ],
    ids=["==", "fields_set", "deepcopy", "from_attributes", "repr", "str"],
)
def test_reading_a_whole_output_suspends_the_code(use: Callable[[ShoutOutput], object]) -> None:
    outcome, _ = record(lambda: use(shout.invoke(ShoutRequest(text="a"))))
    result, _ = run(lambda: use(shout.invoke(ShoutRequest(text="a"))))

    assert isinstance(outcome, Suspension)
    assert result is not None


def test_a_pending_output_becomes_an_ordinary_one() -> None:
    outputs: list[ShoutOutput] = []

    def code() -> str:
        outputs.append(shout.invoke(ShoutRequest(text="a")))
        return outputs[-1].text

    run(code)

    assert [type(output) is ShoutOutput for output in outputs] == [True, True]


def test_a_pending_output_from_an_earlier_run_receives_the_values() -> None:
    kept: list[ShoutOutput] = []

    def code() -> tuple[str, dict[str, object]]:
        kept.append(shout.invoke(ShoutRequest(text="a")))
        return kept[0].text, kept[0].model_dump(include={"text", "length"})

    result, _ = run(code)

    assert result == ("A", {"text": "A", "length": 1})


def test_except_exception_does_not_swallow_the_suspension() -> None:
    def code() -> str:
        try:
            return shout.invoke(ShoutRequest(text="a")).text
        except Exception:
            return "swallowed"

    result, _ = run(code)

    assert result == "A"


def _catch_and_return() -> str:
    try:
        return shout.invoke(ShoutRequest(text="a")).text
    except BaseException:
        return "swallowed"


def _return_in_finally() -> str:
    try:
        return shout.invoke(ShoutRequest(text="a")).text
    finally:
        return "swallowed"  # noqa: B012, SIM107


def _catch_and_raise() -> str:
    try:
        return shout.invoke(ShoutRequest(text="a")).text
    except BaseException as error:
        raise ValueError("other") from error


def _catch_and_invoke() -> str:
    try:
        return shout.invoke(ShoutRequest(text="a")).text
    except BaseException:
        return shout.invoke(ShoutRequest(text="b")).text


@pytest.mark.parametrize("code", [_catch_and_return, _return_in_finally, _catch_and_raise, _catch_and_invoke])
@pytest.mark.filterwarnings("ignore:'return' in a 'finally'")
def test_swallowing_the_suspension_is_an_error(code: Callable[[], str]) -> None:
    with pytest.raises(SwallowedSuspensionError, match=r"Calls caught the BaseException .* `text` of invocation 0"):
        record(code)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_an_error_that_would_end_the_process_ends_the_request_only(error: BaseException) -> None:
    def code() -> None:
        raise error

    with pytest.raises(AbortedError, match=f"Calls raised {type(error).__name__}"):
        record(code)


def test_reading_a_value_of_a_failed_invocation_raises_its_error() -> None:
    def code() -> str:
        output = shout.invoke(ShoutRequest(text="a"))
        try:
            return output.text
        except InvocationError as error:
            return f"{error.code}: {error.message}"

    _, recording = record(code)
    recording.invocations[0].fail("INTERNAL", "boom")

    assert recording.run("Calls", code) == "INTERNAL: boom"


@pytest.mark.parametrize(
    "use", [lambda output: output.model_dump_json(), lambda output: OutputHolder(output=output).model_dump_json()]
)
def test_a_failure_is_not_hidden_by_pydantic(use: Callable[[ShoutOutput], object]) -> None:
    _, recording = record(lambda: use(shout.invoke(ShoutRequest(text="a"))))
    recording.invocations[0].fail("UNAVAILABLE", "gone")

    with pytest.raises(InvocationError, match="gone"):
        recording.run("Calls", lambda: use(shout.invoke(ShoutRequest(text="a"))))


def test_dumping_an_output_survives_except_exception() -> None:
    def code() -> str:
        try:
            return shout.invoke(ShoutRequest(text="a")).model_dump_json()
        except Exception:
            return "swallowed"

    result, _ = run(code)

    assert "A" in result


def test_an_early_value_can_be_read_after_its_invocation_failed() -> None:
    def code() -> int:
        return shout.invoke(ShoutRequest(text="a")).length

    _, recording = record(code)
    recording.invocations[0].set_value("length", b"7")
    recording.invocations[0].fail("INTERNAL", "boom")

    assert recording.run("Calls", code) == 7


def test_an_early_value_can_be_read_before_the_invocation_ends() -> None:
    def code() -> int:
        return shout.invoke(ShoutRequest(text="a")).length

    _, recording = record(code)
    recording.invocations[0].set_value("length", b"7")
    assert recording.run("Calls", code) == 7

    recording.invocations[0].finish(b'{"text": "late"}')
    assert recording.run("Calls", lambda: shout.invoke(ShoutRequest(text="a")).text) == "late"


@pytest.mark.parametrize(
    ("values", "reason"), [(b'{"text": "a"}', "length"), (b"[]", "not a JSON object"), (b"{", "EOF")]
)
def test_invalid_output_values_are_rejected(values: bytes, reason: str) -> None:
    _, recording = record(lambda: shout.invoke(ShoutRequest(text="a")).text)

    with pytest.raises(ValueError, match=reason):
        recording.invocations[0].finish(values)


def test_a_replay_with_a_different_input_is_an_error() -> None:
    counter = iter(range(10))

    def code() -> str:
        shout.invoke(ShoutRequest(text="same"))
        return shout.invoke(ShoutRequest(text=str(next(counter)))).text

    _, recording = record(code)

    with pytest.raises(DivergenceError, match="Shout diverged at invocation 1: its input differs") as error:
        recording.run("Calls", code)

    line = f"test_recording.py:{code.__code__.co_firstlineno + 2}"
    lines = f"{line} called it in the recording, {line} now"
    assert f'{lines}; `text` is "0" in the recording, and "1" now' in str(error.value)


@pytest.mark.parametrize(
    ("recorded", "repeated", "difference"),
    [
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, "`a[1].b` is 2 in the recording, and 3 now"),
        ({"a": [1]}, {"a": [1, 2]}, "`a` has 1 elements in the recording, and 2 now"),
        ({"a": 1, "b": 2}, {"a": 1}, "`b` is only in the recording"),
        ({}, {"a": {"$input": 0}}, "`a` is not in the recording"),
        ({"a": "x" * 100}, {"a": None}, '`a` is "' + "x" * 58 + "… in the recording, and null now"),
        ({"a": 1}, {"a": 1}, ""),
    ],
)
def test_the_first_difference_of_two_inputs_is_described(recorded: object, repeated: object, difference: str) -> None:
    assert first_difference(json.dumps(recorded).encode(), json.dumps(repeated).encode()) == difference


def test_a_replay_with_a_different_unit_task_is_an_error() -> None:
    tasks = iter([Shout(), Shout(voice="other")])

    def code() -> str:
        return next(tasks).invoke(ShoutRequest(text="a")).text

    _, recording = record(code)

    line = rf"test_recording.py:{code.__code__.co_firstlineno + 1}"
    message = f"invocation 0: {line} called it with other settings in the recording, {line} calls Shout now"
    with pytest.raises(DivergenceError, match=message):
        recording.run("Calls", code)


def test_a_replay_that_ends_early_is_an_error() -> None:
    passes = iter([True, False])

    def code() -> object:
        return shout.invoke(ShoutRequest(text="a")).text if next(passes) else None

    _, recording = record(code)

    message = r"Calls diverged at invocation 0: it ended before it repeated the call of Shout at test_recording.py:\d+"
    with pytest.raises(DivergenceError, match=message):
        recording.run("Calls", code)


@pytest.mark.parametrize("repeats", [True, False], ids=["without new values", "after the end"])
def test_a_further_call_is_an_error(*, repeats: bool) -> None:
    numbers = iter([1, 2])

    def code() -> object:
        outputs = [shout.invoke(ShoutRequest(text="a")) for _ in range(next(numbers))]
        return outputs[0].text if repeats else None

    _, recording = record(code)

    message = rf"Calls diverged at invocation 1: {_line(code, 1)} calls Shout now, and did not in the recording"
    with pytest.raises(DivergenceError, match=message):
        recording.run("Calls", code, repeats=repeats)


def test_a_call_after_a_value_that_has_arrived_is_no_divergence() -> None:
    def code() -> str:
        first = shout.invoke(ShoutRequest(text="a"))
        return shout.invoke(ShoutRequest(text=first.text)).text

    _, recording = record(code)
    recording.run("Calls", code, repeats=True)
    finish(recording.invocations[0])
    recording.run("Calls", code)

    assert len(recording.invocations) == 2


def _line(code: Callable[[], object], offset: int) -> str:
    return f"test_recording.py:{code.__code__.co_firstlineno + offset}"


def test_an_equal_unit_task_repeats_an_invocation() -> None:
    result, _ = run(lambda: Shout().invoke(ShoutRequest(text="a")).text)

    assert result == "A"


def test_endless_recording_is_stopped() -> None:
    def code() -> None:
        while True:
            shout.invoke(ShoutRequest(text="again"))

    with pytest.raises(TooManyInvocationsError, match=r"Calls recorded more than 256 invocations.*max_invocations"):
        record(code)


def test_nested_composite_tasks_record_into_one_graph() -> None:
    class Inner(Task[str, ShoutOutput]):
        def post_init(self) -> None:
            self.shout = Shout()

        def invoke(self, request: str) -> ShoutOutput:
            return self.shout.invoke(ShoutRequest(text=request))

    class Outer(Task[str, str]):
        def post_init(self) -> None:
            self.children = [Inner(), Inner()]

        def invoke(self, request: str) -> str:
            return "".join(output.text for output in [child.invoke(request) for child in self.children])

    outer = Outer()
    result, runs = run(lambda: outer.invoke("x"))

    assert result == "XX"
    assert runs == [[0, 1]]


def test_choices_are_the_same_in_every_replay() -> None:
    chosen: list[tuple[int, int]] = []

    def code() -> str:
        chosen.append((replayable_choice(1000), replayable_choice(1000)))
        return shout.invoke(ShoutRequest(text=str(chosen[-1]))).text

    run(code)

    assert len(set(chosen)) == 1
    assert chosen[0][0] != chosen[0][1]


def test_choices_follow_their_probabilities() -> None:
    counts = [0, 0, 0]
    for request in range(3000):
        recording = Recording(ReplayableRandom(f"request-{request}"))
        index = recording.run("Calls", lambda: replayable_choice(3, p=[0.5, 0.0, 0.25]))
        assert isinstance(index, int)
        counts[index] += 1

    assert counts[1] == 0
    assert counts[0] / counts[2] == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("p", [[], [-1.0, 2.0], [0.0, 0.0], [1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_invalid_probabilities_are_rejected(p: list[float]) -> None:
    with pytest.raises(ValueError, match=r"probabilities|weights"):
        record(lambda: replayable_choice(2, p=p))


def test_unit_tasks_work_only_inside_a_request() -> None:
    with pytest.raises(OutsideRequestError, match="Shout was invoked outside of a request"):
        shout.invoke(ShoutRequest(text="a"))


def test_reading_a_value_outside_of_its_request_is_an_error() -> None:
    output, _ = record(lambda: shout.invoke(ShoutRequest(text="a")))

    assert isinstance(output, ShoutOutput)
    with pytest.raises(OutsideRequestError, match="value of Shout's output"):
        output.text  # noqa: B018


async def test_concurrent_requests_have_separate_recordings() -> None:
    async def run(text: str) -> str:
        recording = Recording(ReplayableRandom(text))

        def code() -> str:
            return shout.invoke(ShoutRequest(text=text)).text

        recording.run("Calls", code)
        await asyncio.sleep(0)
        finish(recording.invocations[0])
        result = recording.run("Calls", code)
        assert isinstance(result, str)
        return result

    assert await asyncio.gather(*(run(text) for text in "abc")) == ["A", "B", "C"]
