"""Recordings that resume their code: code that waits for a value runs on when it has arrived."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

import pytest
from greenlet import getcurrent
from pydantic import BaseModel, field_validator
from pydantic_core import to_json

from cornserve import InvocationError, Stream, recorded, replayable_choice
from cornserve.task.errors import OutputSuspension, OutsideRequestError, SideEffectSuspension, Suspension
from cornserve.task.output import with_streams
from cornserve.task.recording import Recording
from cornserve_policies.replayable_random import ReplayableRandom
from tests.unit.task.shout_task import Shout, ShoutOutput, ShoutRequest, finish, run

T = TypeVar("T")

shout = Shout()


def resumed() -> Recording:
    return Recording(ReplayableRandom("request"), resumes=True)


def run_on(recording: Recording, code: Callable[[], T]) -> T:
    """Runs the code until it returns, and finishes its invocations."""
    while isinstance(outcome := recording.run("Calls", code), Suspension):
        if recording.next_side_effect is not None:
            recording.side_effects.append(recording.next_side_effect.run())
        for invocation in recording.invocations:
            if not invocation.ended:
                finish(invocation)
    return outcome


def test_code_runs_once_however_often_it_waits() -> None:
    starts = []

    def code() -> str:
        starts.append(1)
        text = ""
        for turn in range(50):
            text = shout.invoke(ShoutRequest(text=f"{text}{turn % 10}")).text
        return text

    recording = resumed()
    assert run_on(recording, code) == "0123456789" * 5
    assert len(starts) == 1
    assert len(recording.invocations) == 50


def test_the_result_is_that_of_replays() -> None:
    def code() -> list[object]:
        first = shout.invoke(ShoutRequest(text="a"))
        choice = replayable_choice(10)
        second = shout.invoke(ShoutRequest(text=first.text * 2))
        return [choice, replayable_choice(10), second.text, second.length, second.model_dump(mode="json")]

    replayed, _ = run(code)
    assert run_on(resumed(), code) == replayed


class Described(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def shouted(cls, value: str) -> str:
        return shout.invoke(ShoutRequest(text=value)).text


@pytest.mark.parametrize(
    "wait",
    [
        lambda outputs: sorted(outputs, key=lambda output: str(output.text)),
        lambda outputs: [output.model_dump_json() for output in outputs],
        lambda outputs: [repr(output) for output in outputs],
        lambda outputs: [Described(text=f"{index}").text for index, _ in enumerate(outputs)],
    ],
)
def test_code_waits_inside_functions_of_libraries(wait: Callable[[list[ShoutOutput]], list[object]]) -> None:
    def code() -> int:
        return len(wait([shout.invoke(ShoutRequest(text=word)) for word in ("b", "a")]))

    assert run_on(resumed(), code) == 2


def test_code_of_several_requests_waits_at_the_same_time() -> None:
    def greet(name: str) -> str:
        first = shout.invoke(ShoutRequest(text=f"hello {name}"))
        return shout.invoke(ShoutRequest(text=f"{first.text}, bye {name}")).text

    recordings = {name: resumed() for name in ("ann", "bob", "cid")}
    results: dict[str, str] = {}
    while len(results) < len(recordings):
        for name, recording in recordings.items():
            if name in results:
                continue
            outcome = recording.run("Greet", lambda name=name: greet(name))  # type: ignore[misc]
            if isinstance(outcome, Suspension):
                finish(recording.invocations[-1])
            else:
                results[name] = outcome

    assert results == {name: f"HELLO {name}, BYE {name}".upper() for name in recordings}


def test_a_failure_is_raised_where_its_output_is_read() -> None:
    def code() -> str:
        try:
            return shout.invoke(ShoutRequest(text="a")).text
        except InvocationError as error:
            return error.code

    recording = resumed()
    assert isinstance(recording.run("Calls", code), OutputSuspension)
    recording.invocations[0].fail("INTERNAL", "out of memory")
    assert recording.run("Calls", code) == "INTERNAL"


def test_catching_every_exception_does_not_end_the_wait() -> None:
    def code() -> str:
        try:
            return shout.invoke(ShoutRequest(text="a")).text
        except BaseException:
            return "swallowed"

    assert run_on(resumed(), code) == "A"


def test_a_call_with_side_effects_runs_once_while_the_code_waits() -> None:
    calls = []

    def buy() -> int:
        calls.append(1)
        return len(calls)

    def code() -> list[object]:
        bought = recorded(buy)
        return [bought, shout.invoke(ShoutRequest(text="x")).text, recorded(buy)]

    recording = resumed()
    assert isinstance(recording.run("Calls", code), SideEffectSuspension)
    assert run_on(recording, code) == [1, "X", 2]


def test_code_that_does_not_wait_at_the_same_time_shares_a_stack() -> None:
    stacks = []

    def code() -> str:
        stacks.append(getcurrent())
        return shout.invoke(ShoutRequest(text="a")).text

    for _ in range(2):
        run_on(resumed(), code)
    waiting = [resumed(), resumed()]
    for recording in waiting:
        recording.run("Calls", code)
    for recording in waiting:
        recording.close()

    assert stacks[0] is stacks[1]
    assert stacks[2] is not stacks[3]


def test_an_error_of_code_that_has_waited_is_raised_and_its_stack_is_used_again() -> None:
    stacks = []

    def code() -> str:
        stacks.append(getcurrent())
        raise ValueError(shout.invoke(ShoutRequest(text="a")).text)

    for _ in range(2):
        with pytest.raises(ValueError, match="A"):
            run_on(resumed(), code)

    assert stacks[0] is stacks[1]


def test_variables_of_the_context_that_code_sets_do_not_reach_the_next_code() -> None:
    variable = ContextVar("variable", default="unset")

    def code() -> str:
        found = variable.get()
        variable.set(shout.invoke(ShoutRequest(text="a")).text)
        return found

    assert [run_on(resumed(), code) for _ in range(2)] == ["unset", "unset"]


def test_closing_ends_waiting_code() -> None:
    ended = []

    def code() -> str:
        try:
            return shout.invoke(ShoutRequest(text="a")).text
        finally:
            ended.append("first")
            try:
                _ = shout.invoke(ShoutRequest(text="b")).text  # It can wait no more.
            finally:
                ended.append("second")

    recording = resumed()
    recording.run("Calls", code)
    recording.close()

    assert ended == ["first", "second"]


def test_closed_code_does_not_go_on_when_it_catches_exceptions() -> None:
    def code() -> None:
        while True:
            try:
                _ = shout.invoke(ShoutRequest(text="a")).text
            except Exception:
                continue

    recording = resumed()
    recording.run("Calls", code)
    recording.close()


def test_an_error_does_not_keep_its_code_alive() -> None:
    class Kept:
        """An object that the code holds."""

    references = []

    def code() -> None:
        kept = Kept()
        references.append(weakref.ref(kept))
        raise ValueError(shout.invoke(ShoutRequest(text="a")).text)

    gc.disable()
    try:
        with suppress(ValueError):
            run_on(resumed(), code)
        assert references[0]() is None
    finally:
        gc.enable()


def test_another_thread_cannot_wait() -> None:
    errors = []

    def code() -> None:
        output = shout.invoke(ShoutRequest(text="a"))

        def read() -> None:
            try:
                _ = output.text
            except OutsideRequestError as error:
                errors.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()

    assert run_on(resumed(), code) is None
    assert len(errors) == 1


def test_a_returned_output_is_complete_after_the_code_has_ended() -> None:
    def code() -> ShoutOutput:
        output = shout.invoke(ShoutRequest(text="a"))
        assert output.text == "A"
        return output

    kept = run_on(resumed(), code)
    complete = ShoutOutput.model_validate(vars(kept))

    assert kept == complete
    assert complete == kept
    assert to_json(kept) == to_json(complete)
    assert kept.model_dump() == complete.model_dump()
    assert kept.model_copy() == complete
    assert repr(kept) == repr(complete)
    assert kept.model_fields_set == complete.model_fields_set


@pytest.mark.parametrize(
    "use",
    [
        lambda output: output.model_copy(update={"text": "b"}).text,
        lambda output: copy.deepcopy(output).length,
        lambda output: with_streams(output, words=Stream()).model_dump(mode="json")["text"],
        lambda output: with_streams(output, words=Stream()).text,
        lambda output: output == output.model_copy(),
    ],
)
def test_code_that_waits_for_a_whole_output_goes_on_with_a_complete_one(use: Callable[[ShoutOutput], object]) -> None:
    def code() -> object:
        return use(shout.invoke(ShoutRequest(text="a")))

    replayed, _ = run(code)
    assert run_on(resumed(), code) == replayed
