"""A unit task for the tests of record and replay, and functions that run code with immediate results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from cornserve import Output, Stream, Tensor, UnitTask
from cornserve.task.errors import Suspension
from cornserve.task.recording import Invocation, Recording
from cornserve_policies.replayable_random import ReplayableRandom

T = TypeVar("T")


class ShoutRequest(BaseModel):
    text: str
    embedding: Tensor | None = None


class ShoutOutput(Output):
    words: Stream[str] = Stream()
    embedding: Tensor = Tensor()
    text: str
    length: int


class Shout(UnitTask[ShoutRequest, ShoutOutput]):
    executor = "shout"

    voice: str = "plain"


def record(code: Callable[[], T]) -> tuple[T | Suspension, Recording]:
    recording = Recording(ReplayableRandom("request"))
    return recording.run("Calls", code), recording


def finish(invocation: Invocation) -> None:
    """Finishes an invocation like an executor that returns the text in upper case."""
    text = from_json(invocation.request)["text"].upper()
    invocation.finish(to_json({"text": text, "length": len(text)}))


def run(code: Callable[[], T]) -> tuple[T, list[list[int]]]:
    """Runs the code until it returns. Also returns the invocations that each run recorded."""
    recording = Recording(ReplayableRandom("request"))
    runs: list[list[int]] = []
    while True:
        known = len(recording.invocations)
        result = recording.run("Calls", code)
        new = recording.invocations[known:]
        if new:
            runs.append([invocation.index for invocation in new])
        if not isinstance(result, Suspension):
            return result, runs
        for invocation in recording.invocations:
            if not invocation.ended:
                finish(invocation)
