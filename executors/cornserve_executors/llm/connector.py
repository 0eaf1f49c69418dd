"""How the embeddings that an encoder has made enter vLLM: in the place where it keeps those that it makes itself.

vLLM asks a connector, in the process of its engine, for what it does not encode. A request carries the locations of its
tensors in the slabs of encoders; the engine hears of it when all of them have arrived.

A slab's owner may take a tensor back at any time: when its request is cancelled, say. What is computed from other data
is then wrong not for one request only: vLLM finds it again by the image's identifier, for whoever sends that image. So
what a request needs of a step is copied before the scheduler gives it a place in that step. If the tensor was taken
back before the copy was whole, the request fails, and nothing has been computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata, ECConnectorRole
from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from cornserve.transport import Location, SegmentReader, StaleError, TensorView
from cornserve_executors.tensor_copies import copy_from_buffer

ENCODED = "encoded/"
"""What the identifiers of images begin with that the engine does not encode itself."""


def tensor_reference(received: TensorView) -> dict[str, Any]:
    """By which the engine's process finds a tensor."""
    return {"location": asdict(received.location), "dtype": received.dtype, "shape": received.shape}


@dataclass(slots=True)
class EmbeddingLoads(ECConnectorMetadata):  # type: ignore[misc]
    """What the model's processes put into their caches in a step, by identifier."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


class EmbeddingsConnector(ECConnectorBase):  # type: ignore[misc]
    def __init__(self, vllm_config: VllmConfig, role: ECConnectorRole) -> None:
        super().__init__(vllm_config=vllm_config, role=role)
        self._device = current_platform.device_type
        # Else the model runs in other processes, to which tensors go through the host's memory.
        runs_here = vllm_config.parallel_config.world_size == 1
        self._copied_to = self._device if runs_here else "cpu"
        self._step_tokens = vllm_config.scheduler_config.max_num_batched_tokens
        self._dtype = vllm_config.model_config.dtype
        self._reader = SegmentReader()
        self._copies: dict[str, dict[str, torch.Tensor]] = {}
        """Of each request that is being read: what it needs next."""
        self._loads = EmbeddingLoads()
        self._failed: set[str] = set()

    # In the scheduler

    def ensure_cache_available(self, request: Request, num_computed_tokens: int) -> bool:
        locations = request.ec_transfer_params or {}
        kept = self._copies.pop(request.request_id, {})
        needed = _needed(request, num_computed_tokens, num_computed_tokens + self._step_tokens)
        try:
            copies = {
                identifier: kept[identifier] if identifier in kept else self._copy(locations[identifier])
                for identifier in needed
            }
        except StaleError:
            self._failed.add(request.request_id)
            return False
        if copies:
            self._copies[request.request_id] = copies
        return True

    def _copy(self, fields: dict[str, Any]) -> torch.Tensor:
        location = Location(**fields["location"])
        copy = copy_from_buffer(self._reader.view(location), fields["dtype"], fields["shape"], self._copied_to)
        self._reader.check(location)
        return copy.to(self._dtype)

    def has_cache_item(self, identifier: str) -> bool:
        return identifier.startswith(ENCODED)

    def update_state_after_alloc(self, request: Request, index: int) -> None:
        identifier = request.mm_features[index].identifier
        if self.has_cache_item(identifier):
            self._loads.tensors[identifier] = self._copies[request.request_id][identifier]

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> EmbeddingLoads:
        loads, self._loads = self._loads, EmbeddingLoads()
        return loads

    def take_unavailable_requests(self) -> set[str]:
        failed, self._failed = self._failed, set()
        return failed

    def request_finished(self, request: Request) -> tuple[bool, None]:
        self._copies.pop(request.request_id, None)
        self._failed.discard(request.request_id)
        return False, None

    # Beside the model

    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **_: Any) -> None:
        loads = self._get_connector_metadata()
        assert isinstance(loads, EmbeddingLoads)
        for identifier, tensor in loads.tensors.items():
            encoder_cache[identifier] = tensor.to(self._device, non_blocking=True)

    def save_caches(self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **_: Any) -> None:
        """What the engine encodes itself goes nowhere else."""


def _needed(request: Request, start: int, end: int) -> Iterator[str]:
    """The encoded images that have a part in these tokens."""
    for feature in request.mm_features:
        place = feature.mm_position
        if feature.identifier.startswith(ENCODED) and place.offset < end and place.offset + place.length > start:
            yield feature.identifier
