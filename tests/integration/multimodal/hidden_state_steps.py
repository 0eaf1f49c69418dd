"""Steps of an engine whose hidden states are read. Imports vLLM."""

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


def create_runner(monkeypatch: pytest.MonkeyPatch) -> ActiveKVConnector:
    """Returns the part of vLLM's model runner for GPUs that calls the connector.

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


class KeepingModel(KeepsHiddenStates, torch.nn.Identity):  # type: ignore[misc]
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
        KeepingModel()(states_of(slots))
    runner.finish_forward()
    runner.post_forward(set())


def taken(key: str) -> list[float]:
    """Returns the first number of each state."""
    states = torch.frombuffer(bytearray(take_states(key)), dtype=torch.bfloat16).view(-1, WIDTH)
    numbers: list[float] = states[:, 0].tolist()
    return numbers
