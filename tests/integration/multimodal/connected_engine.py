"""Both sides of the connector for embeddings, in one process. Imports vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.config import ECTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.distributed.ec_transfer import ec_transfer_state
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItem, PlaceholderRange
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.request import Request
from vllm.v1.worker.gpu.ec_connector import ActiveECConnector
from vllm.v1.worker.gpu.mm.encoder_cache import EncoderCache

from cornserve.transport import Location, TensorView
from cornserve.transport.memory.slab import Slab
from cornserve_executors.llm.connector import ENCODED, EmbeddingsConnector, tensor_reference
from cornserve_executors.tensor_copies import copy_to_buffer, dtype_name

STEP_TOKENS = 64
IMAGE = f"{ENCODED}corn"


def embeddings(value: float) -> torch.Tensor:
    """Returns equal embeddings of an image."""
    return torch.full((6, 16), value, dtype=torch.bfloat16)


def levels(dtype: str) -> torch.Tensor:
    """Returns embeddings of an image, whose columns are the levels of DeepStack."""
    return torch.arange(6 * 16, dtype=getattr(torch, dtype)).view(6, 16)


def write(slab: Slab, rows: torch.Tensor) -> TensorView:
    """Writes embeddings as an encoder does."""
    generation = slab.assign_generation(0)
    location = Location(slab.mapping.path, slab.mapping.layout.data, rows.nbytes, generation)
    buffer = memoryview(slab.writable(location.offset, rows.nbytes)).cast("B")
    copy_to_buffer(rows, buffer)
    return TensorView(dtype_name(rows.dtype), tuple(rows.shape), b"", buffer, location, slab.mapping)


def request(view: TensorView, offset: int) -> Request:
    """Returns a request with an image that begins at a position of its prompt."""
    parameters = {"ec_transfer_params": {IMAGE: tensor_reference(view)}}
    position = PlaceholderRange(offset=offset, length=view.shape[0])
    image = MultiModalFeatureSpec(data=None, modality="image", identifier=IMAGE, mm_position=position)
    sampling = SamplingParams(max_tokens=1, extra_args=parameters)
    return Request("a", [1] * (offset + view.shape[0] + 1), sampling, None, mm_features=[image])


def output(*new: NewRequestData) -> Any:
    """Returns the scheduler's output of a step with new requests."""
    return SimpleNamespace(finished_req_ids=set(), scheduled_new_reqs=[*new])


def cached_request(view: TensorView) -> tuple[Request, NewRequestData]:
    """Returns a request with an image whose KV cache exists, and what vLLM sends to its worker."""
    cached = request(view, offset=0)
    cached.mm_features[0].data = MultiModalKwargsItem.dummy()
    cached.num_computed_tokens = view.shape[0]
    return cached, NewRequestData.from_request(cached, ([],))


@dataclass(frozen=True, slots=True)
class Engine:
    """The connector's two sides in one process, as with one GPU."""

    scheduler: EmbeddingsConnector
    runner: ActiveECConnector
    cache: EncoderCache

    def load(self, request: Request) -> None:
        """Schedules a request and begins its step, as vLLM does."""
        assert self.scheduler.ensure_cache_available(request, 0)
        assert self.scheduler.has_cache_item(IMAGE)
        self.scheduler.update_state_after_alloc(request, 0)
        step = output()
        step.ec_connector_metadata = self.scheduler.build_connector_meta(step)
        with self.runner.maybe_get_output(step):
            pass


def create_config(model: Path, dtype: str) -> VllmConfig:
    """Returns the settings of a model with a dtype of GPUs."""
    name, module = EmbeddingsConnector.__name__, EmbeddingsConnector.__module__
    return VllmConfig(
        model_config=ModelConfig(model=str(model), dtype=dtype),
        scheduler_config=SchedulerConfig.default_factory(max_num_batched_tokens=STEP_TOKENS, max_num_seqs=1),
        ec_transfer_config=ECTransferConfig(ec_connector=name, ec_connector_module_path=module, ec_role="ec_consumer"),
    )


def create_engine(config: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> Engine:
    worker = EmbeddingsConnector(config, ECConnectorRole.WORKER)
    monkeypatch.setattr(ec_transfer_state, "_EC_CONNECTOR_AGENT", worker)
    cache = EncoderCache()
    runner = ActiveECConnector(config, cache.encoder_outputs)
    return Engine(EmbeddingsConnector(config, ECConnectorRole.SCHEDULER), runner, cache)
