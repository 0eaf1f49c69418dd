"""The slots of the KV cache whose hidden states an engine reads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

from vllm import SamplingParams
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData

from cornserve_executors.llm.hidden_states import STATES, HiddenStatesConnector

BLOCK = 4
POSITIONS = [1, 2, 5, 6, 7, 9]


def connector() -> HiddenStatesConnector:
    """Returns the side of the scheduler."""
    made = HiddenStatesConnector.__new__(HiddenStatesConnector)
    made._block_size, made._wanted = BLOCK, {}
    return made


def new_request(id: str, blocks: list[int], *, wanted: bool = True) -> NewRequestData:
    extra = {STATES: {"key": f"key-{id}", "positions": POSITIONS}} if wanted else None
    sampling = SamplingParams(extra_args=extra)
    return NewRequestData(id, [0] * 12, [], sampling, None, (blocks,), num_computed_tokens=0, lora_request=None)


def slots_of_step(
    connector: HiddenStatesConnector,
    scheduled: dict[str, int],
    new: tuple[NewRequestData, ...] = (),
    cached: Mapping[str, tuple[int, list[int] | None]] = MappingProxyType({}),
    resumed: frozenset[str] = frozenset(),
) -> dict[str, list[int]]:
    """Returns the slots of a step.

    Args:
        scheduled: the number of tokens of each request.
        cached: requests of earlier steps, with the number of computed tokens and new blocks.
    """
    data = CachedRequestData.make_empty()
    data.req_ids = list(cached)
    data.num_computed_tokens = [computed for computed, _ in cached.values()]
    data.new_block_ids = [None if blocks is None else (blocks,) for _, blocks in cached.values()]
    data.resumed_req_ids = set(resumed)
    output: Any = SimpleNamespace(
        scheduled_new_reqs=list(new), scheduled_cached_reqs=data, num_scheduled_tokens=scheduled
    )
    return connector.build_connector_meta(output).slots


def test_a_prompt_in_one_step_has_the_slots_of_its_media() -> None:
    new = (new_request("a", [7, 3, 5]), new_request("b", [9], wanted=False))

    assert slots_of_step(connector(), {"a": 12, "b": 4}, new) == {"key-a": [29, 30, 13, 14, 15, 21]}


def test_a_prompt_in_parts_has_each_slot_once() -> None:
    states = connector()

    assert slots_of_step(states, {"a": 6}, (new_request("a", [7, 3]),)) == {"key-a": [29, 30, 13]}
    assert slots_of_step(states, {"a": 6}, cached={"a": (6, [5])}) == {"key-a": [14, 15, 21]}
    assert slots_of_step(states, {"a": 1}, cached={"a": (12, None)}) == {}


def test_a_preempted_request_reads_the_rest_from_its_new_blocks() -> None:
    states = connector()
    slots_of_step(states, {"a": 6}, (new_request("a", [7, 3]),))

    assert slots_of_step(states, {"a": 6}, cached={"a": (0, [1, 2])}, resumed=frozenset("a")) == {}
    assert slots_of_step(states, {"a": 6}, cached={"a": (6, [4])}) == {"key-a": [10, 11, 17]}


def test_a_finished_request_is_forgotten() -> None:
    states = connector()
    slots_of_step(states, {"a": 6}, (new_request("a", [7, 3]),))

    states.request_finished_all_groups(SimpleNamespace(request_id="a"), ())

    assert slots_of_step(states, {"a": 6}, cached={"a": (6, [5])}) == {}
