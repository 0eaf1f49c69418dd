"""Recorded calls: their errors, and their comparison in a replay."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cornserve import recorded
from cornserve.app.unused_fields import tracked
from cornserve.task.call_arguments import NOT_COMPARED, encode_arguments
from cornserve.task.errors import DivergenceError, SideEffectError, Suspension
from cornserve.task.recording import Recording
from cornserve_policies.replayable_random import ReplayableRandom
from tests.unit.task.shout_task import Shout, ShoutRequest, finish

shout = Shout()


def replay(code: Callable[[], Any], runs: int = 5) -> Any:
    """Runs the code from its start several times, with the results of its calls."""
    recording = Recording(ReplayableRandom("request"))
    outcome = None
    for _ in range(runs):
        outcome = recording.run("Calls", code)
        if recording.next_side_effect is not None:
            recording.side_effects.append(recording.next_side_effect.run())
        for invocation in recording.invocations:
            if not invocation.ended:
                finish(invocation)
    assert not isinstance(outcome, Suspension)
    return outcome


def line(code: Callable[[], Any], offset: int) -> str:
    return f"test_side_effects.py:{code.__code__.co_firstlineno + offset}"


def test_other_arguments_are_a_divergence() -> None:
    counter = iter(range(10))

    def code() -> Any:
        return recorded(str, next(counter))

    place = line(code, 1)
    message = (
        f"the replay of Calls diverged: the arguments of str differ from the recorded ones: {place} called it in the "
        f"recording, {place} now; `argument 1` is 0 in the recording, and 1 now."
    )
    with pytest.raises(DivergenceError, match=re.escape(message)):
        replay(code)


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({"number": 1}, {"number": 2}, "`number` is 1 in the recording, and 2 now"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, r"`a\[0\].b` is 1 in the recording, and 2 now"),
        ({"a": 1}, {}, "`a` is only in the recording"),
        ({"data": b"a"}, {"data": b"bc"}, r'`data` is "1 bytes, SHA-256 \w{16}" in the recording, and "2 bytes'),
        ({"text": "x" * 2000}, {"text": "y"}, r'`text` is "2002 characters, SHA-256 \w{16}" in the recording, and'),
    ],
)
def test_the_first_argument_that_differs_is_named(
    first: dict[str, Any], second: dict[str, Any], difference: str
) -> None:
    keywords = iter([first, second])

    def code() -> Any:
        return recorded(dict, **next(keywords))

    with pytest.raises(DivergenceError, match=difference):
        replay(code)


def test_another_function_is_a_divergence() -> None:
    functions: Iterator[Callable[[], Any]] = iter([str, int])

    def code() -> Any:
        return recorded(next(functions))

    message = f"diverged: {line(code, 1)} called str in the recording, {line(code, 1)} calls int now"
    with pytest.raises(DivergenceError, match=message):
        replay(code)


def test_a_missing_call_is_a_divergence() -> None:
    runs = iter([True, True, False])

    def code() -> Any:
        return recorded(str) if next(runs) else None

    message = f"it ended before it repeated the recorded call of str at {line(code, 1)}"
    with pytest.raises(DivergenceError, match=message):
        replay(code)


def test_a_further_call_is_a_divergence() -> None:
    runs = iter([False, True])

    def code() -> Any:
        return recorded(str) if next(runs) else None

    message = f"diverged: {line(code, 1)} calls str now, and did not in the recording"
    with pytest.raises(DivergenceError, match=message):
        replay(code)


@pytest.mark.parametrize(("first", "second"), [((str, 1), (str, 2)), ((str,), (int,))])
def test_a_repeated_run_waits_for_the_same_call(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    calls = iter([first, first, second])
    recording = Recording(ReplayableRandom("request"))

    def code() -> Any:
        return recorded(*next(calls))

    recording.run("Calls", code)
    recording.run("Calls", code, repeats=True)
    with pytest.raises(DivergenceError, match="in the recording"):
        recording.run("Calls", code, repeats=True)


def test_the_line_of_a_call_is_not_compared() -> None:
    runs = iter(range(10))

    def code() -> Any:
        if next(runs) % 2:
            return recorded(str, 1)
        return recorded(str, 1)

    assert replay(code) == "1"


class Color(Enum):
    RED = "red"


class Item(BaseModel, extra="allow"):
    name: str


@dataclass(frozen=True, slots=True)
class Numbers:
    left: Any
    right: Any


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, None),
        ((1, 2.5, "a\ud800"), [1, 2.5, "a\ud800"]),
        ({"b": 1, "a": True}, {"a": True, "b": 1}),
        ({"c", "a", "b"}, ["a", "b", "c"]),
        (Color.RED, "red"),
        (date(2026, 1, 2), "2026-01-02"),
        (Path("/a"), "/a"),
        (Item(name="corn", price=2), {"name": "corn", "price": 2}),  # type: ignore[call-arg]
        (Numbers(Item(name="corn"), object()), {"left": {"name": "corn"}, "right": NOT_COMPARED}),
        ([print, int], [NOT_COMPARED] * 2),
        ({(1, 2): "a"}, NOT_COMPARED),
    ],
)
def test_an_argument_is_encoded_in_the_same_way_in_each_run(value: Any, encoded: Any) -> None:
    assert json.loads(encode_arguments([value], {})) == {"argument 1": encoded}


def test_the_order_of_keywords_does_not_matter() -> None:
    assert encode_arguments([], {"a": 1, "b": 2}) == encode_arguments([], {"b": 2, "a": 1})


def test_arguments_that_cannot_be_compared_are_passed_on() -> None:
    loop: list[Any] = []
    loop.append(loop)

    def code() -> Any:
        return recorded(lambda items, lock, cycle: [*items, len(cycle)], (number for number in [1, 2]), object(), loop)

    assert replay(code) == [1, 2, 1]


def test_an_output_that_is_passed_on_is_not_awaited() -> None:
    runs = []

    def code() -> Any:
        output = shout.invoke(ShoutRequest(text="a"))
        runs.append(1)
        return [recorded(lambda given: type(given).__name__, output), recorded(len, output.text)]

    assert replay(code, 4) == ["ShoutOutput", 1]


def test_fields_of_a_passed_request_do_not_count_as_read() -> None:
    request: Any = tracked(Item, Item(name="corn"))

    encode_arguments([request], {})

    assert request._read == set()


def fail(reason: str) -> None:
    raise ValueError(reason)


def test_the_error_of_a_call_has_the_frames_of_the_function() -> None:
    with pytest.raises(SideEffectError, match="fail: ValueError: a secret") as error:
        replay(lambda: recorded(fail, "a secret"))

    assert str(error.value) == "fail: ValueError: a secret"
    (traceback,) = error.value.__notes__
    first, _, last = traceback.splitlines()
    assert first.endswith("in fail")
    assert last == "builtins.ValueError"
    assert "a secret" not in traceback


def test_a_result_that_cannot_be_read_back_is_an_error_of_the_call() -> None:
    with pytest.raises(SideEffectError, match="pow: its result cannot be written as JSON: number out of range"):
        replay(lambda: recorded(pow, 10, 5000))
