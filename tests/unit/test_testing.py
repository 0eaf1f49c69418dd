"""`cornserve.testing` runs tasks with the outputs that a test gives."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import AwareDatetime, BaseModel
from pydantic_core import PydanticSerializationError

from cornserve import InvocationError, Output, Stream, Task, Tensor, UnitTask, recorded, replayable_choice
from cornserve.task import with_streams
from cornserve.task.errors import (
    DivergenceError,
    ReleasedOutputError,
    ResponseTypeError,
    TooManyInvocationsError,
    YieldTypeError,
)
from cornserve.task.references import Origin
from cornserve.testing import AnswerError, CallFailure, run_task, stream_items
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, LLMTask


class Picture(BaseModel):
    name: str


class EmbeddedPicture(Output):
    embedding: Tensor = Tensor()


class EmbedPicture(UnitTask[Picture, EmbeddedPicture]):
    executor = "embed"


class Prompt(BaseModel):
    text: str
    embedding: Tensor | None = None


class WrittenText(Output):
    text: str
    words: Stream[str] = Stream()


class WriteText(UnitTask[Prompt, WrittenText]):
    executor = "write"


class PictureCaption(BaseModel):
    text: str
    words: Stream[str] = Stream()


class Describe(Task[Picture, PictureCaption]):
    def post_init(self) -> None:
        self.embed, self.write = EmbedPicture(), WriteText()

    def invoke(self, request: Picture) -> PictureCaption:
        draft = self.write.invoke(Prompt(text="draft", embedding=self.embed.invoke(request).embedding))
        final = self.write.invoke(Prompt(text=f"improve {draft.text}"))
        return PictureCaption(text=final.text, words=final.words.map(str.upper))


def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
    return {} if isinstance(request, Picture) else {"text": f"<{request.text}>", "words": ["a", "b"]}


def test_a_task_runs_with_the_outputs_of_the_test() -> None:
    run = run_task(Describe(), Picture(name="cat"), answer)

    assert run.response.text == "<improve <draft>>"
    assert stream_items(run.response.words) == ["A", "B"]
    assert [(call.task.name, call.round) for call in run.calls] == [
        ("EmbedPicture", 1),
        ("WriteText", 1),
        ("WriteText", 2),
    ]
    assert [call.request.text for call in run.calls_of("WriteText")] == ["draft", "improve <draft>"]
    assert run.calls[1].request.embedding is not None


def test_a_unit_task_and_an_output_object_work_too() -> None:
    run = run_task(WriteText(), Prompt(text="x"), lambda task, request: WrittenText(text=request.text * 2))

    assert run.response.text == "xx"
    assert stream_items(run.response.words) == []


class Careful(Describe):
    def invoke(self, request: Picture) -> PictureCaption:
        try:
            return PictureCaption(text=self.write.invoke(Prompt(text="x")).text)
        except InvocationError as error:
            return PictureCaption(text=f"{error.code}: {error.message}")


def test_a_failure_reaches_the_task_where_it_reads_the_output() -> None:
    def fail(task: UnitTask[Any, Any], request: Any) -> CallFailure:
        return CallFailure("out of memory", code="UNAVAILABLE")

    assert run_task(Careful(), Picture(name="cat"), fail).response.text == "UNAVAILABLE: out of memory"
    with pytest.raises(InvocationError, match="out of memory"):
        run_task(Describe(), Picture(name="cat"), fail)


class Unread(Task[Picture, WrittenText]):
    def post_init(self) -> None:
        self.write = WriteText()

    def invoke(self, request: Picture) -> WrittenText:
        return self.write.invoke(Prompt(text="x"))


def test_a_failure_of_an_output_that_is_only_returned_is_raised() -> None:
    with pytest.raises(InvocationError, match="a broken executor"):
        run_task(Unread(), Picture(name="cat"), lambda task, request: CallFailure("a broken executor"))


numbers = itertools.count()


class Counting(Describe):
    def invoke(self, request: Picture) -> PictureCaption:
        self.write.invoke(Prompt(text=str(next(numbers))))
        return PictureCaption(text="")


def test_a_task_that_depends_on_more_than_its_request_fails() -> None:
    with pytest.raises(DivergenceError, match="its input differs from the recorded one"):
        run_task(Counting(), Picture(name="cat"), answer)


class Endless(Describe):
    def invoke(self, request: Picture) -> PictureCaption:
        while self.write.invoke(Prompt(text="x")).text:
            pass
        return PictureCaption(text="")


def test_the_limit_of_invocations_applies() -> None:
    with pytest.raises(TooManyInvocationsError, match="more than 8 invocations"):
        run_task(Endless(), Picture(name="cat"), answer, max_invocations=8)


class Choose(Describe):
    def invoke(self, request: Picture) -> PictureCaption:
        return PictureCaption(text=str(replayable_choice(1000)))


def test_random_choices_follow_from_the_id_of_the_request() -> None:
    found = [run_task(Choose(), Picture(name="cat"), answer, request_id=name).response.text for name in "aab"]

    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"txt": "x"}, "WriteText has no output 'txt' that a test can give: its outputs are text, words"),
        ({}, "the answer for WriteText is not valid: text: is required: add it"),
        ({"text": 5}, "text: must be a valid string, not 5"),
        ({"text": "x", "words": [5]}, "the answer for WriteText is not valid: must be a valid string, not 5"),
        ("x", "the answer for WriteText is 'x': return its output, a dict of fields or a CallFailure"),
    ],
)
def test_an_answer_that_is_not_an_output_is_refused(given: Any, message: str) -> None:
    with pytest.raises(AnswerError, match=message):
        run_task(WriteText(), Prompt(text="x"), lambda task, request: given)


class Mistaken(Describe):
    def invoke(self, request: Picture) -> Any:
        return self.write.invoke(Prompt(text="x")).text


def test_a_response_of_another_type_is_an_error() -> None:
    with pytest.raises(ResponseTypeError, match="Mistaken returned a value of the type str, not PictureCaption"):
        run_task(Mistaken(), Picture(name="cat"), answer)


class Borrow(Task[Picture, WrittenText]):
    """Returns the words of one call with the text of another."""

    def post_init(self) -> None:
        self.write = WriteText()

    def invoke(self, request: Picture) -> WrittenText:
        first, second = (self.write.invoke(Prompt(text=text)) for text in ("x", "y"))
        return with_streams(first, words=second.words.map(str.upper))


def test_an_output_can_have_the_stream_of_another_one() -> None:
    run = run_task(Borrow(), Picture(name="cat"), answer)

    assert run.response.text == "<x>"
    assert stream_items(run.response.words) == ["A", "B"]
    assert [call.round for call in run.calls] == [1, 1]  # without waiting for a value


def test_an_output_cannot_get_a_stream_that_its_type_lacks() -> None:
    with pytest.raises(TypeError, match="WrittenText does not have the stream text"):
        with_streams(WrittenText(text="x"), text=Stream())


kept: list[WrittenText] = []


class Keep(Unread):
    def invoke(self, request: Picture) -> WrittenText:
        kept.append(self.write.invoke(Prompt(text="x")))
        return kept[-1]


def test_the_response_stays_valid() -> None:
    run = run_task(Keep(), Picture(name="cat"), answer)

    assert type(run.response) is WrittenText
    assert run.response.text == "<x>"
    assert stream_items(run.response.words.map(str.upper)) == ["A", "B"]


class EmbedTwice(Task[Picture, EmbeddedPicture]):
    """Yields one output, and returns another."""

    def post_init(self) -> None:
        self.embed = EmbedPicture()

    def invoke(self, request: Picture) -> Generator[Any, None, EmbeddedPicture]:
        yield self.embed.invoke(request)
        return self.embed.invoke(request)


def test_tensors_of_the_response_stay_valid() -> None:
    run = run_task(EmbedTwice(), Picture(name="cat"), answer)

    assert run.yielded == [EmbeddedPicture(embedding=Tensor(Origin(0, "embedding")))]
    assert run.response.embedding == Tensor(Origin(1, "embedding"))


class UseKeptText(Unread):
    def invoke(self, request: Picture) -> WrittenText:
        return WrittenText(text=kept[-1].text)


class UseKeptWords(Unread):
    def invoke(self, request: Picture) -> WrittenText:
        return WrittenText(text="x", words=kept[-1].words)


@pytest.mark.parametrize("task", [UseKeptText(), UseKeptWords()], ids=["value", "stream"])
@pytest.mark.parametrize("given", [{"text": "x"}, CallFailure("broken")], ids=["a run", "a failed run"])
def test_an_output_that_a_run_has_kept_is_released(task: Task[Any, Any], given: Any) -> None:
    with suppress(InvocationError):
        run_task(Keep(), Picture(name="cat"), lambda task, request: given)

    with pytest.raises(ReleasedOutputError, match="an output of the type WrittenText was used after its request"):
        run_task(task, Picture(name="cat"), answer)


class Quote(Describe):
    """Maps a stream by a function that uses an output."""

    def invoke(self, request: Picture) -> PictureCaption:
        output = self.write.invoke(Prompt(text="x"))
        text = output.text
        return PictureCaption(text=text, words=output.words.map(lambda word: output.text + word))


def test_a_mapped_stream_can_use_outputs() -> None:
    run = run_task(Quote(), Picture(name="cat"), answer)

    assert stream_items(run.response.words) == ["<x>a", "<x>b"]


class Fragile(Describe):
    def invoke(self, request: Picture) -> PictureCaption:
        return PictureCaption(text="", words=self.write.invoke(Prompt(text="x")).words.map(int).map(str))


def test_an_error_in_a_stream_of_the_response_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        run_task(Fragile(), Picture(name="cat"), answer)
    with pytest.raises(InvocationError, match="broken"):
        run_task(Fragile(), Picture(name="cat"), lambda task, request: CallFailure("broken"))


class AnyCaption(BaseModel):
    anything: Any = None
    words: Stream[Any] = Stream()


class Opaque(Task[Picture, AnyCaption]):
    """Responds with an object that cannot be written as JSON."""

    place: str

    def post_init(self) -> None:
        self.write = WriteText()

    def invoke(self, request: Picture) -> Generator[Any, None, AnyCaption]:
        words = self.write.invoke(Prompt(text="x")).words.map(lambda word: object())
        match self.place:
            case "value":
                return AnyCaption(anything=object())
            case "stream":
                return AnyCaption(words=words)
            case "yielded stream":
                yield words
        return AnyCaption()


def test_a_response_that_can_be_written_as_json_is_accepted() -> None:
    assert run_task(Opaque(place=""), Picture(name="cat"), answer).response == AnyCaption()


@pytest.mark.parametrize("place", ["value", "stream", "yielded stream"])
def test_a_response_that_cannot_be_written_as_json_is_an_error(place: str) -> None:
    with pytest.raises(PydanticSerializationError, match="Unable to serialize unknown type"):
        run_task(Opaque(place=place), Picture(name="cat"), answer)


class Growing(Describe):
    """Makes more calls the more often it runs."""

    def post_init(self) -> None:
        super().post_init()
        self.runs = itertools.count(1)

    def invoke(self, request: Picture) -> PictureCaption:
        outputs = [self.write.invoke(Prompt(text=str(index))) for index in range(self.calls(next(self.runs)))]
        return PictureCaption(text="".join(output.text for output in outputs))

    def calls(self, run: int) -> int:
        return run


class Doubling(Growing):
    def calls(self, run: int) -> int:
        return min(run, 2)


class Recorder(Growing):
    def calls(self, run: int) -> int:
        return 1 if run == 1 else int(recorded(str, 1))


class Careless(Growing):
    """Does not read the outputs of its calls."""

    def invoke(self, request: Picture) -> PictureCaption:
        for index in range(next(self.runs)):
            self.write.invoke(Prompt(text=str(index)))
        return PictureCaption(text="")


@pytest.mark.parametrize(
    ("task", "call"), [(Growing, "WriteText"), (Doubling, "WriteText"), (Recorder, "str"), (Careless, "WriteText")]
)
def test_more_calls_in_a_repeated_run_are_a_divergence(task: type[Growing], call: str) -> None:
    with pytest.raises(DivergenceError, match=rf"test_testing.py:\d+ calls {call} now, and did not in the recording"):
        run_task(task(), Picture(name="cat"), answer)


class ReadOther(Growing):
    """Reads another output in each run."""

    def invoke(self, request: Picture) -> PictureCaption:
        outputs = [self.write.invoke(Prompt(text=text)) for text in "ab"]
        return PictureCaption(text=outputs[next(self.runs) % 2].text)


class ReturnOther(Growing):
    """Returns another type in each run."""

    def invoke(self, request: Picture) -> PictureCaption:
        return PictureCaption(text="") if next(self.runs) % 2 else OtherCaption(text="")


class OtherCaption(PictureCaption):
    pass


@pytest.mark.parametrize(
    ("task", "ends"),
    [
        (ReadOther, "it waited for `text` of invocation 1 in the recording, and waited for `text` of invocation 0 now"),
        (ReturnOther, r"returned a value of the type PictureCaption in the .*, and returned .* OtherCaption now"),
    ],
)
def test_another_end_of_a_repeated_run_is_a_divergence(task: type[Growing], ends: str) -> None:
    with pytest.raises(DivergenceError, match=ends):
        run_task(task(), Picture(name="cat"), answer)


def test_calls_are_reported_before_a_divergence() -> None:
    calls: list[str] = []
    with pytest.raises(DivergenceError):
        run_task(Doubling(), Picture(name="cat"), answer, on_call=lambda call: calls.append(call.task.name))

    assert calls == ["WriteText"]


class Converse(Task[ChatRequest, ChatResponse]):
    def post_init(self) -> None:
        self.llm = LLMTask(model_id="m")


class YieldNumber(Converse):
    def invoke(self, request: ChatRequest) -> Generator[Any, None, ChatResponse]:
        yield 7
        return self.llm.invoke(request)


class YieldObject(Task[Picture, WrittenText]):
    def invoke(self, request: Picture) -> Generator[Any, None, WrittenText]:
        yield object()
        return WrittenText(text="x")


def test_a_chat_yields_parts_of_a_chat() -> None:
    with pytest.raises(YieldTypeError, match="invoke yielded a value of the type int: yield a str, a ChatChunk"):
        run_task(YieldNumber(), ChatRequest.ask("x"), lambda task, request: {"text": "a"})


def test_a_yielded_value_can_be_written_as_json() -> None:
    with pytest.raises(ValueError, match="Unable to serialize unknown type"):
        run_task(YieldObject(), Picture(name="cat"), answer)


class YieldRuns(Converse):
    """Yields the number of the run, and outputs."""

    def post_init(self) -> None:
        super().post_init()
        self.runs = itertools.count(1)

    def invoke(self, request: ChatRequest) -> Generator[Any, None, ChatResponse]:
        yield f"run {next(self.runs)}"
        draft = self.llm.invoke(request)
        yield draft
        yield draft.chunks.map(lambda chunk: chunk.model_copy(update={"text": chunk.text.upper()}))
        yield draft.text
        return self.llm.invoke(ChatRequest.ask(draft.text))


def test_yielded_values_are_those_of_the_first_run_and_stay_valid() -> None:
    run = run_task(
        YieldRuns(), ChatRequest.ask("x"), lambda task, request: {"text": "a", "chunks": [ChatChunk(text="a")]}
    )

    first, draft, chunks, text = run.yielded
    assert (first, draft.text, text) == ("run 1", "a", "a")
    assert [chunk.text for chunk in stream_items(draft.chunks)] == ["a"]
    assert [chunk.text for chunk in stream_items(chunks)] == ["A"]


@pytest.mark.parametrize("task", [Describe(), EmbedPicture()], ids=["composite", "unit"])
def test_a_request_of_another_type_is_refused(task: Task[Any, Any]) -> None:
    with pytest.raises(TypeError, match=f"{task.name} takes the type Picture, not dict"):
        run_task(task, {"name": "cat"}, answer)


class Halve(Task[float, float]):
    def invoke(self, request: float) -> float:
        return request / 2 if request else request


class NameZone(Task[AwareDatetime, str]):
    def invoke(self, request: datetime) -> str:
        return str(request.tzinfo)


def test_a_request_can_have_a_type_that_stands_for_other_classes() -> None:
    assert run_task(Halve(), 0, answer).response == 0
    assert run_task(Halve(), 1.0, answer).response == 0.5
    assert run_task(NameZone(), datetime.now(UTC), answer).response == "UTC"


def test_a_float_task_takes_numbers_only() -> None:
    request: Any = "1"
    with pytest.raises(TypeError, match="Halve takes the type float or int, not str"):
        run_task(Halve(), request, answer)


THREE_TASKS = """
import sys

import pytest
from cornserve import Task
from cornserve.testing import run_task
from cornserve_tasklib import ChatRequest, ChatResponse, LLMTask

STARTS = ("os.fork", "os.posix_spawn", "subprocess.Popen")

def refuse_processes(event, arguments):
    if event in STARTS:
        raise AssertionError(f"{event} was called")

sys.addaudithook(refuse_processes)

class Answer(Task[ChatRequest, ChatResponse]):
    def post_init(self) -> None:
        self.llm = LLMTask(model_id="/models/m")

    def invoke(self, request: ChatRequest) -> ChatResponse:
        return self.llm.invoke(request)

class Revise(Answer):
    def invoke(self, request: ChatRequest) -> ChatResponse:
        return self.llm.invoke(ChatRequest.ask("Shorten: " + self.llm.invoke(request).text))

class Compare(Answer):
    def invoke(self, request: ChatRequest) -> ChatResponse:
        answers = [self.llm.invoke(request), self.llm.invoke(request)]
        return max(answers, key=lambda answer: len(answer.text))

@pytest.mark.parametrize(("task", "calls"), [(Answer(), 1), (Revise(), 2), (Compare(), 2)])
def test_task(task, calls):
    run = run_task(task, ChatRequest.ask("Hi"), lambda task, request: {"text": "Hello"})

    assert run.response.text == "Hello"
    assert len(run.calls) == calls
"""


def test_a_test_file_of_a_user_starts_no_process(tmp_path: Path) -> None:
    (tmp_path / "test_tasks.py").write_text(THREE_TASKS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_tasks.py"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # Loading the plugins takes seconds.

    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
