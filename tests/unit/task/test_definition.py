"""Defining tasks: what is accepted, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from cornserve import App, ExecutorSpec, Output, Stream, Task, Tensor, UnitTask
from cornserve.task.errors import DefinitionError
from cornserve.task.recording import Recording
from cornserve.task.replayable_random import ReplayableRandom
from tests.unit.task.playing import Said, Say, Text


class Twice(Task[str, str]):
    times: int = 2

    def post_init(self) -> None:
        if self.times < 1:
            raise ValueError("times must be positive")
        self.all = [Say(), {"other": Say(voice="other")}]
        self.again = Say()

    def invoke(self, request: str) -> str:
        return request * self.times


def test_a_task_finds_its_unit_tasks_wherever_they_are_held() -> None:
    assert [unit.voice for unit in Twice().unit_tasks() if isinstance(unit, Say)] == ["plain", "other", "plain"]


def test_equal_unit_tasks_share_an_executor_spec_and_others_do_not() -> None:
    assert Say().key == Say().key
    assert Say().key != Say(voice="other").key
    assert len({unit.key for unit in Twice().unit_tasks()}) == 2


def test_a_spec_key_is_a_kubernetes_name() -> None:
    assert ExecutorSpec(executor="llm", config={"a": 1}).key.startswith("llm-")
    assert ExecutorSpec(executor="llm", config={"a": 1, "b": 2}) == ExecutorSpec(
        executor="llm", config={"b": 2, "a": 1}
    )
    assert (
        ExecutorSpec(executor="llm", config={"a": 1, "b": 2}).key
        == ExecutorSpec(executor="llm", config={"b": 2, "a": 1}).key
    )
    assert ExecutorSpec(executor="llm", gpus=1).key != ExecutorSpec(executor="llm", gpus=2).key


def test_tasks_cannot_be_changed_after_they_are_built() -> None:
    with pytest.raises(AttributeError, match="no side effects"):
        Twice().count = 1


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="times must be positive"):
        Twice(times=0)
    with pytest.raises(ValidationError, match="voices"):
        Say(voices="plain")  # type: ignore[call-arg]


def test_a_unit_task_refuses_another_request_type() -> None:
    with pytest.raises(TypeError, match="Say takes a Text, not a str"):
        Recording(ReplayableRandom("r")).play("t", lambda: Say().invoke("text"))  # type: ignore[arg-type]


def test_a_subclass_of_the_request_is_sent_as_the_declared_type() -> None:
    class More(Text):
        secret: str = "x"

    recording = Recording(ReplayableRandom("r"))
    recording.play("t", lambda: Say().invoke(More(text="a", secret="y")))

    assert recording.invocations[0].request == b'{"text":"a"}'


def test_a_mapped_stream_cannot_be_an_input() -> None:
    class Words(BaseModel):
        words: Stream[str]

    class Listen(UnitTask[Words, Said]):
        executor = "listen"

    def code() -> Said:
        words = Say().invoke(Text(text="a")).words
        return Listen().invoke(Words(words=words.map(str.upper)))

    with pytest.raises(Exception, match="mapped Stream cannot be the input"):
        Recording(ReplayableRandom("r")).play("t", code)


def test_references_hidden_in_other_types_are_refused_when_the_task_is_defined() -> None:
    class Bad(Output):
        tensors: list[Tensor]

    with pytest.raises(DefinitionError, match=r"Bad.tensors .* must be a field of its own"):

        class Make(UnitTask[Text, Bad]):
            executor = "make"


def test_a_unit_task_must_give_an_output() -> None:
    with pytest.raises(DefinitionError, match=r"must give a cornserve.Output, not Text"):

        class Make(UnitTask[Text, Text]):  # type: ignore[type-var]
            executor = "make"


class Untyped(Task[Any, Any]):
    def post_init(self) -> None:
        self.say = Say()


def test_an_app_checks_its_name() -> None:
    for name in ("", "Upper", "-x", "a b", "x" * 64):
        with pytest.raises(DefinitionError, match="is no app name"):
            App(name=name, paths=[Twice()])


def test_an_app_needs_paths_that_are_alternatives() -> None:
    class Other(Task[int, str]):
        pass

    with pytest.raises(DefinitionError, match="has no paths"):
        App(name="a", paths=[])
    with pytest.raises(DefinitionError, match="no alternatives: Twice and Other"):
        App(name="a", paths=[Twice(), Other()])
    with pytest.raises(DefinitionError, match="2 paths but 1 shares"):
        App(name="a", paths=[Twice(), Twice()], shares=[1.0])


def test_an_app_whose_executor_is_not_installed_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"no executor 'say' is installed .*llm"):
        App(name="a", paths=[Twice()]).executor_specs()


def test_an_app_whose_unit_task_has_no_types_is_refused() -> None:
    class Shapeless(UnitTask):  # type: ignore[type-arg]
        executor = "llm"

    class Uses(Task[str, str]):
        def post_init(self) -> None:
            self.shapeless = Shapeless()

    with pytest.raises(DefinitionError, match="Shapeless must derive from"):
        App(name="a", paths=[Uses()]).executor_specs()


def test_an_app_without_unit_tasks_is_refused() -> None:
    class Nothing(Task[str, str]):
        pass

    with pytest.raises(DefinitionError, match="calls no unit task"):
        App(name="a", paths=[Nothing()]).executor_specs()
