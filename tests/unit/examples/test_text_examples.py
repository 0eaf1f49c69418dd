"""The example apps for texts, with outputs of a language model that the tests give."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cornserve import Task, UnitTask
from cornserve.home import Home
from cornserve.testing import run_task
from cornserve_tasklib import ChatRequest

QUESTION = ChatRequest.ask("Describe a cornfield.")


def load_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Imports an example, which needs the directory of a model."""
    monkeypatch.setenv("CORNSERVE_HOME", str(tmp_path))
    (Home.default().models / "smollm2").mkdir(parents=True)
    monkeypatch.delitem(sys.modules, f"examples.{name}", raising=False)
    return importlib.import_module(f"examples.{name}")


@pytest.fixture
def task(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task[Any, Any]:
    """The only path of an example's app."""
    (path,) = load_example(request.param, tmp_path, monkeypatch).app.paths
    assert isinstance(path, Task)
    return path


def question_of(request: ChatRequest) -> str:
    return str(request.messages[-1].content)


@pytest.mark.parametrize("task", ["branch_and_loop"], indirect=True)
@pytest.mark.parametrize(
    ("critiques", "text"), [(["OK."], "draft"), (["dull", "OK."], "better 1"), (["dull", "dull"], "better 2")]
)
def test_a_text_is_improved_until_the_critic_approves(task: Task[Any, Any], critiques: list[str], text: str) -> None:
    given, improved = iter(critiques), iter(("better 1", "better 2"))

    def answer(_: UnitTask[Any, Any], request: ChatRequest) -> Mapping[str, Any]:
        if request == QUESTION:
            return {"text": "draft"}
        return {"text": next(given if question_of(request).startswith("Is this good?") else improved)}

    run = run_task(task, QUESTION, answer)

    assert run.response.text == text
    assert list(given) == []


@pytest.mark.parametrize("task", ["visible_steps"], indirect=True)
def test_each_step_is_shown(task: Task[Any, Any]) -> None:
    texts = {"Describe": "draft", "What is wrong": "dull", "Improve": "better"}

    def answer(_: UnitTask[Any, Any], request: ChatRequest) -> Mapping[str, Any]:
        return {"text": next(text for start, text in texts.items() if question_of(request).startswith(start))}

    run = run_task(task, QUESTION, answer)

    assert run.response.text == "better"
    assert run.yielded[::2] == ["Draft: ", "\n\nCritique: ", "\n\nRevision: "]
    assert [call.round for call in run.calls] == [1, 2, 3]


@pytest.mark.parametrize("task", ["fan_out"], indirect=True)
def test_experts_are_asked_concurrently(task: Task[Any, Any]) -> None:
    question = sys.modules["examples.fan_out"].Question(question="Cook?", experts=["a doctor", "a banker"])

    def answer(_: UnitTask[Any, Any], request: ChatRequest) -> Mapping[str, Any]:
        return {"text": question_of(request).split(".")[0]}

    run = run_task(task, question, answer)

    assert run.response.opinions == {"a doctor": "You are a doctor", "a banker": "You are a banker"}
    assert run.response.summary == "Sum this up in one sentence"
    assert [call.round for call in run.calls] == [1, 1, 2]


@pytest.mark.parametrize("task", ["agent"], indirect=True)
def test_the_model_chooses_a_tool_and_then_answers(task: Task[Any, Any]) -> None:
    choices = iter(("die", "answer"))

    def answer(_: UnitTask[Any, Any], request: ChatRequest) -> Mapping[str, Any]:
        return {"text": next(choices) if request.structured_outputs else question_of(request)}

    run = run_task(task, ChatRequest.ask("Roll a die."), answer)

    assert run.response.text.startswith("The die shows ")
    assert run.yielded[0] == f"[die] {run.response.text}\n"
