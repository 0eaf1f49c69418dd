"""The slots of the KV cache whose hidden states an engine reads, and the states of slots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(scope="module")
def steps() -> Any:
    """A module that imports vLLM, which takes seconds."""
    from tests.integration.multimodal import hidden_state_steps

    return hidden_state_steps


@pytest.fixture
def runner(steps: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    return steps.create_runner(monkeypatch)


def test_a_prompt_in_one_step_has_the_slots_of_its_media(steps: Any) -> None:
    new = (steps.new_request("a", [7, 3, 5]), steps.new_request("b", [9], wanted=False))

    assert steps.slots_of_step(steps.connector(), {"a": 12, "b": 4}, new) == {"key-a": [29, 30, 13, 14, 15, 21]}


def test_a_prompt_in_parts_has_each_slot_once(steps: Any) -> None:
    states = steps.connector()

    assert steps.slots_of_step(states, {"a": 6}, (steps.new_request("a", [7, 3]),)) == {"key-a": [29, 30, 13]}
    assert steps.slots_of_step(states, {"a": 6}, cached={"a": (6, [5])}) == {"key-a": [14, 15, 21]}
    assert steps.slots_of_step(states, {"a": 1}, cached={"a": (12, None)}) == {}


def test_a_preempted_request_reads_the_rest_from_its_new_blocks(steps: Any) -> None:
    states = steps.connector()
    steps.slots_of_step(states, {"a": 6}, (steps.new_request("a", [7, 3]),))

    assert steps.slots_of_step(states, {"a": 6}, cached={"a": (0, [1, 2])}, resumed=frozenset("a")) == {}
    assert steps.slots_of_step(states, {"a": 6}, cached={"a": (6, [4])}) == {"key-a": [10, 11, 17]}


def test_a_finished_request_is_forgotten(steps: Any) -> None:
    states = steps.connector()
    steps.slots_of_step(states, {"a": 6}, (steps.new_request("a", [7, 3]),))

    states.request_finished_all_groups(SimpleNamespace(request_id="a"), ())

    assert steps.slots_of_step(states, {"a": 6}, cached={"a": (6, [5])}) == {}


def test_the_states_of_slots_are_found_in_any_order_of_the_batch(steps: Any, runner: Any) -> None:
    steps.run_step(runner, [40, 7, 8, 9, 21, 22], {"a": [8, 9], "b": [22, 40]})

    assert steps.taken("a") == [8, 9]
    assert steps.taken("b") == [22, 40]
    assert steps.take_states("a") == b""


def test_the_states_of_several_steps_are_joined(steps: Any, runner: Any) -> None:
    steps.run_step(runner, [7, 8, 9, 10], {"a": [7, 9]})
    steps.run_step(runner, [3, 11], {"a": [11]})

    assert steps.taken("a") == [7, 9, 11]


def test_padding_and_earlier_steps_do_not_hide_the_state_of_a_slot(steps: Any, runner: Any) -> None:
    steps.run_step(runner, [0, 1, 2, 3, 4, 5, 6, 7], {})
    steps.run_step(runner, [7, 0, -1, -1], {"a": [0, 7]})

    assert steps.taken("a") == [0, 7]
