"""A small task library for the tests of record and replay, and executors that answer at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from cornserve import Output, Stream, Task, Tensor, UnitTask
from cornserve.task.errors import Suspension
from cornserve.task.recording import Invocation, Recording
from cornserve.task.replayable_random import ReplayableRandom

T = TypeVar("T")


class Text(BaseModel):
    text: str
    embedding: Tensor | None = None


class Said(Output):
    words: Stream[str] = Stream()
    embedding: Tensor = Tensor()
    text: str
    length: int


class Say(UnitTask[Text, Said]):
    executor = "say"

    voice: str = "plain"


class Calls(Task[str, Any]):
    """Runs any function of (the unit task, the request)."""

    def post_init(self) -> None:
        self.say = Say()


def record(code: Callable[[], T], recording: Recording | None = None) -> tuple[T | Suspension, Recording]:
    recording = recording or Recording(ReplayableRandom("request"))
    return recording.play("Calls", code), recording


def answer(invocation: Invocation) -> None:
    """Ends an invocation as an executor would that shouts."""
    text = from_json(invocation.request)["text"].upper()
    invocation.end(to_json({"text": text, "length": len(text)}))


def run(code: Callable[[], T]) -> tuple[T, list[list[int]]]:
    """Plays to the end; also returns which invocations were new in each round."""
    recording = Recording(ReplayableRandom("request"))
    rounds: list[list[int]] = []
    while True:
        known = len(recording.invocations)
        result = recording.play("Calls", code)
        new = recording.invocations[known:]
        if new:
            rounds.append([invocation.index for invocation in new])
        if not isinstance(result, Suspension):
            return result, rounds
        for invocation in recording.invocations:
            if not invocation.ended:
                answer(invocation)
