"""Reads hidden states of tokens, which the talkers of Omni models need.

The model keeps the states of the tokens of a step, and their slots in the KV cache, in the order of the batch. A
request names the positions that it needs (`STATES` in `SamplingParams.extra_args`), or needs all. vLLM passes the
tokens of each step to a KV connector: its scheduler side computes in which slots the positions are, and its worker side
finds the slots among those that the model has kept. The connector does not transfer a KV cache.

Tokens whose KV cache is reused have no states: such a request must set `skip_reading_prefix_cache`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.forward_context import get_forward_context
from vllm.sequence import IntermediateTensors
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from cornserve_executors.llm.scheduled_requests import scheduled_requests
from cornserve_executors.vllm.private_api import keep_hidden_states_of_layer

STATES = "hidden_states"
"""The key in `SamplingParams.extra_args`. The value is `{"key": …, "positions": …}`, as in `WantedStates`."""


class KeepsHiddenStates:
    """A base of models that keep the hidden states of the last step, if the engine has a `HiddenStatesConnector`.

    The layer is the one whose states the talker accepts: for a Qwen2.5-Omni, the last one after its norm.
    """

    language_model: Any
    states_of_step: torch.Tensor | None = None
    """The shape is [max_num_batched_tokens, width]. vLLM runs one model in a process."""
    slots_of_step: torch.Tensor | None = None
    """The slots of these tokens in the KV cache, of the shape [max_num_batched_tokens]. -1 without a token."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        transfer = vllm_config.kv_transfer_config
        if transfer is None or transfer.kv_connector != HiddenStatesConnector.__name__:
            return
        talker = vllm_config.model_config.hf_config.talker_config
        if hasattr(talker, "accept_hidden_layer"):
            keep_hidden_states_of_layer(self.language_model.model, talker.accept_hidden_layer)
        tokens, width = vllm_config.scheduler_config.max_num_batched_tokens, vllm_config.model_config.get_hidden_size()
        KeepsHiddenStates.allocate(tokens, width)

    @staticmethod
    def allocate(tokens: int, width: int) -> None:
        """Allocates the memory for a step, on the device and in the dtype of the model."""
        KeepsHiddenStates.states_of_step = torch.empty(tokens, width)
        KeepsHiddenStates.slots_of_step = torch.empty(tokens, dtype=torch.int64)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result = super().forward(*args, **kwargs)  # type: ignore[misc]
        if self.states_of_step is None or isinstance(result, IntermediateTensors):
            return result
        output, (states,) = result if isinstance(result, tuple) else (result, (result,))
        self._keep(states)
        return output

    def _keep(self, states: torch.Tensor) -> None:
        """Copies the states and their slots to fixed addresses: vLLM captures the copies in its CUDA graphs.

        When it replays a graph, it neither calls `forward` nor sets a forward context.
        """
        assert self.states_of_step is not None
        assert self.slots_of_step is not None
        self.states_of_step[: len(states)].copy_(states)
        self.slots_of_step.fill_(-1)
        for slots in islice(get_forward_context().slot_mapping.values(), 1):  # Those of the first layer.
            self.slots_of_step[: len(slots)].copy_(slots)


@dataclass(slots=True)
class WantedStates:
    """A request whose states are read."""

    key: str
    """Identifies the states in the worker."""
    positions: Sequence[int] | None
    """Positions in the prompt, in order. None: all, and those of generated tokens."""
    blocks: list[int] = field(default_factory=list)
    """The blocks of its KV cache."""
    read: int = 0
    """The number of positions that have been computed. A preempted request computes them again."""

    def next_slots(self, start: int, end: int, block_size: int) -> list[int]:
        """Returns the slots of the positions that are computed from `start` to `end`, and not yet read."""
        if self.positions is None:
            positions = list(range(max(start, self.read), end))
        else:
            positions = [position for position in self.positions[self.read :] if start <= position < end]
        self.read += len(positions)
        return [self.blocks[position // block_size] * block_size + position % block_size for position in positions]


@dataclass(slots=True)
class StatesOfStep(KVConnectorMetadata):  # type: ignore[misc]
    """The slots whose states the workers read in a step, by `WantedStates.key`."""

    slots: dict[str, list[int]] = field(default_factory=dict)


class HiddenStatesConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._block_size: int = vllm_config.cache_config.block_size
        self._wanted: dict[str, WantedStates] = {}
        self._states: dict[str, list[torch.Tensor]] = {}

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    # Called in the scheduler

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """Does nothing, because no KV cache is loaded."""

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> StatesOfStep:
        step = StatesOfStep()
        for request in scheduled_requests(scheduler_output, self._wanted):
            if STATES in request.parameters:
                self._wanted.setdefault(request.id, WantedStates(**request.parameters[STATES]))
            if (wanted := self._wanted.get(request.id)) is None:
                continue
            request.add_blocks(wanted.blocks)
            if slots := wanted.next_slots(request.computed, request.end, self._block_size):
                step.slots[wanted.key] = slots
        return step

    def request_finished_all_groups(self, request: Request, block_ids: Any) -> tuple[bool, None]:
        self._wanted.pop(request.request_id, None)
        return False, None

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, None]:
        return self.request_finished_all_groups(request, block_ids)

    # Called in the workers

    def start_load_kv(self, forward_context: Any, **_: Any) -> None:
        """Does nothing, because no KV cache is loaded."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Does nothing, because no KV cache is loaded."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **_: Any) -> None:
        """Does nothing, because no KV cache is saved."""

    def wait_for_save(self) -> None:
        """Copies the states of the step that requests need to the host."""
        step = self._get_connector_metadata()
        assert isinstance(step, StatesOfStep)
        if not step.slots:
            return
        states = KeepsHiddenStates.states_of_step
        assert states is not None
        assert KeepsHiddenStates.slots_of_step is not None
        slots, tokens = KeepsHiddenStates.slots_of_step.sort()
        for key, wanted in step.slots.items():
            rows = tokens[torch.searchsorted(slots, torch.tensor(wanted, device=slots.device))]
            self._states.setdefault(key, []).append(states[rows].cpu())

    def take(self, key: str) -> bytes:
        """Returns the states of a request as rows, and forgets them. Empty without states."""
        parts = self._states.pop(key, [])
        return torch.cat(parts).view(torch.uint8).numpy().tobytes() if parts else b""


def take_states(key: str) -> bytes:
    """See `HiddenStatesConnector.take`. Must be called in a worker."""
    connector = get_kv_transfer_group()
    assert isinstance(connector, HiddenStatesConnector)
    return connector.take(key)
