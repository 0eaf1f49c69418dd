"""Loads the embeddings of encoder executors into vLLM's encoder cache.

vLLM's engine process uses an encoder-cache (EC) connector to load embeddings that it does not compute. A request
carries the locations of its tensors in the encoders' slabs; it is sent to the engine after all tensors have arrived.

The producer may revoke a tensor at any time, for example when its request is cancelled, and then reuse its memory. A
result computed from the wrong data would be wrong for other requests as well, because vLLM's caches are keyed by the
image's identifier. The connector therefore copies the tensors that a request needs in a step before the scheduler adds
the request to that step. If a tensor was revoked before its copy was complete, the request fails before any
computation.

The connector also keeps the media of new requests complete. vLLM does not send the inputs of a medium to its worker if
the KV cache of its tokens is loaded or cached. If it preempts such a request and has given that KV cache away, it
encodes the medium, for which the worker needs the inputs: vLLM 0.32 ends with an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata, ECConnectorRole
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from cornserve.transport import Location, SegmentReader, StaleError, TensorView
from cornserve_executors.tensor_copies import copy_from_buffer

ENCODED = "encoded/"
"""Prefix of the identifiers of images that an encoder executor has encoded."""


def tensor_reference(tensor: TensorView) -> dict[str, Any]:
    """Returns a reference with which the engine process can read the tensor."""
    return {"location": asdict(tensor.location), "dtype": tensor.dtype, "shape": tensor.shape}


@dataclass(slots=True)
class EmbeddingLoads(ECConnectorMetadata):  # type: ignore[misc]
    """Embeddings that the workers add to their encoder caches in a step, by identifier."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


class EmbeddingsConnector(ECConnectorBase):  # type: ignore[misc]
    def __init__(self, vllm_config: VllmConfig, role: ECConnectorRole) -> None:
        super().__init__(vllm_config=vllm_config, role=role)
        self._device = current_platform.device_type
        # A model in worker processes receives tensors through host memory.
        is_single_process = vllm_config.parallel_config.world_size == 1
        self._copy_device = self._device if is_single_process else "cpu"
        # Drafts of speculative decoding read ahead.
        step_tokens = vllm_config.scheduler_config.max_num_batched_tokens
        self._step_tokens = step_tokens + vllm_config.num_prefill_lookahead_tokens
        self._dtype = vllm_config.model_config.dtype
        self._reader = SegmentReader()
        self._copies: dict[str, dict[str, torch.Tensor]] = {}
        """Embeddings for the next step, by request and identifier."""
        self._loads = EmbeddingLoads()
        self._failed: set[str] = set()
        self._media: dict[str, Sequence[MultiModalFeatureSpec]] = {}
        """The media of each request with media, complete."""

    # Called in the scheduler

    def ensure_cache_available(self, request: Request, num_computed_tokens: int) -> bool:
        self._media[request.request_id] = request.mm_features
        locations = request.ec_transfer_params or {}
        copied = self._copies.pop(request.request_id, {})
        needed = _needed_identifiers(request, num_computed_tokens, num_computed_tokens + self._step_tokens)
        try:
            copies = {
                identifier: copied[identifier] if identifier in copied else self._copy(locations[identifier])
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
        copy = copy_from_buffer(self._reader.view(location), fields["dtype"], fields["shape"], self._copy_device)
        self._reader.check(location)
        return copy.to(self._dtype)

    def has_cache_item(self, identifier: str) -> bool:
        return identifier.startswith(ENCODED)

    def update_state_after_alloc(self, request: Request, index: int) -> None:
        identifier = request.mm_features[index].identifier
        if self.has_cache_item(identifier):
            self._loads.tensors[identifier] = self._copies[request.request_id][identifier]

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> EmbeddingLoads:
        for new in scheduler_output.scheduled_new_reqs:
            new.mm_features = self._media.get(new.req_id, new.mm_features)
        loads, self._loads = self._loads, EmbeddingLoads()
        return loads

    def take_unavailable_requests(self) -> set[str]:
        failed, self._failed = self._failed, set()
        return failed

    def request_finished(self, request: Request) -> tuple[bool, None]:
        self._copies.pop(request.request_id, None)
        self._failed.discard(request.request_id)
        self._media.pop(request.request_id, None)
        return False, None

    # Called in the workers

    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **_: Any) -> None:
        loads = self._get_connector_metadata()
        assert isinstance(loads, EmbeddingLoads)
        for identifier, tensor in loads.tensors.items():
            encoder_cache[identifier] = tensor.to(self._device, non_blocking=True)

    def save_caches(self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **_: Any) -> None:
        """Does nothing, because embeddings that the engine computes are not exported."""


def _needed_identifiers(request: Request, start: int, end: int) -> Iterator[str]:
    """Yields the identifiers of the encoded images that overlap these tokens."""
    for feature in request.mm_features:
        position = feature.mm_position
        if (
            feature.identifier.startswith(ENCODED)
            and position.offset < end
            and position.offset + position.length > start
        ):
            yield feature.identifier
