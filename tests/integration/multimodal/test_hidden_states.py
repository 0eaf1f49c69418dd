"""The slots of the KV cache whose hidden states an engine reads, and the states of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.forward_context import ForwardContext, override_forward_context
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData
from vllm.v1.worker.gpu.kv_connector import ActiveKVConnector

from cornserve_executors.llm.hidden_states import (
    STATES,
    HiddenStatesConnector,
    KeepsHiddenStates,
    StatesOfStep,
    take_states,
)

BLOCK = 4
WIDTH = 3
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


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ActiveKVConnector:
    """The part of vLLM's model runner for GPUs that calls the connector.

    There is memory for the states of 16 tokens of a model in bfloat16.
    """
    name, module = HiddenStatesConnector.__name__, HiddenStatesConnector.__module__
    transfer = KVTransferConfig(kv_connector=name, kv_connector_module_path=module, kv_role="kv_producer")
    config = VllmConfig(kv_transfer_config=transfer)
    connector = HiddenStatesConnector(config, KVConnectorRole.WORKER, None)
    monkeypatch.setattr(kv_transfer_state, "_KV_CONNECTOR_AGENT", connector)
    monkeypatch.setattr(KeepsHiddenStates, "states_of_step", None)
    monkeypatch.setattr(KeepsHiddenStates, "slots_of_step", None)
    with set_default_torch_dtype(torch.bfloat16):
        KeepsHiddenStates.allocate(16, WIDTH)
    return ActiveKVConnector(config, {})


class Model(KeepsHiddenStates, torch.nn.Identity):  # type: ignore[misc]
    """A model that returns its input as hidden states."""

    __init__ = torch.nn.Identity.__init__


def states_of(slots: Sequence[int]) -> torch.Tensor:
    """Returns the states of a batch, each of which is the number of its slot."""
    return torch.tensor(slots, dtype=torch.bfloat16)[:, None].expand(-1, WIDTH)


def run_step(runner: ActiveKVConnector, slots: list[int], wanted: dict[str, list[int]]) -> None:
    """Runs a step as vLLM's model runner for GPUs does: its forward context ends before the connector saves.

    Args:
        slots: those of the tokens of the batch. -1 is padding.
    """
    persistent = torch.zeros(2, 16, dtype=torch.int64)  # One row for each group of layers of the KV cache.
    persistent[0, : len(slots)] = torch.tensor(slots)
    slot_mapping = {"layers.0": persistent[0, : len(slots)], "layers.1": persistent[1, : len(slots)]}
    output: Any = SimpleNamespace(kv_connector_metadata=StatesOfStep(wanted), has_sync_kv_loads=False)
    with override_forward_context(ForwardContext({}, {}, slot_mapping)):
        runner.pre_forward(output)
        Model()(states_of(slots))
    runner.finish_forward()
    runner.post_forward(set())


def taken(key: str) -> list[float]:
    """Returns the first number of each state."""
    states = torch.frombuffer(bytearray(take_states(key)), dtype=torch.bfloat16).view(-1, WIDTH)
    numbers: list[float] = states[:, 0].tolist()
    return numbers


def test_the_states_of_slots_are_found_in_any_order_of_the_batch(runner: ActiveKVConnector) -> None:
    run_step(runner, [40, 7, 8, 9, 21, 22], {"a": [8, 9], "b": [22, 40]})

    assert taken("a") == [8, 9]
    assert taken("b") == [22, 40]
    assert take_states("a") == b""


def test_the_states_of_several_steps_are_joined(runner: ActiveKVConnector) -> None:
    run_step(runner, [7, 8, 9, 10], {"a": [7, 9]})
    run_step(runner, [3, 11], {"a": [11]})

    assert taken("a") == [7, 9, 11]


def test_padding_and_earlier_steps_do_not_hide_the_state_of_a_slot(runner: ActiveKVConnector) -> None:
    run_step(runner, [0, 1, 2, 3, 4, 5, 6, 7], {})
    run_step(runner, [7, 0, -1, -1], {"a": [0, 7]})

    assert taken("a") == [0, 7]
