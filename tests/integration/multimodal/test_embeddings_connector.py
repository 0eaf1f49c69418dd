"""Embeddings between an encoder's shared memory and the encoder cache of vLLM's model runner for GPUs."""

from __future__ import annotations

from collections.abc import AsyncIterator
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
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.v1.request import Request
from vllm.v1.worker.gpu.ec_connector import ActiveECConnector
from vllm.v1.worker.gpu.mm.encoder_cache import EncoderCache

from cornserve.transport import Location, TensorView
from cornserve.transport.memory.segment import PAGE, TOKEN_BYTES
from cornserve.transport.memory.slab import Slab
from cornserve_executors.llm.connector import ENCODED, EmbeddingsConnector, tensor_reference
from cornserve_executors.tensor_copies import copy_to_buffer, dtype_name

STEP_TOKENS = 64
IMAGE = f"{ENCODED}corn"


@pytest.fixture
async def slab(tmp_path: Path) -> AsyncIterator[Slab]:
    """The shared memory of an encoder."""
    made = Slab(tmp_path, bytes(TOKEN_BYTES), 16 * PAGE)
    await made.create()
    yield made
    await made.remove()


def write(slab: Slab, rows: torch.Tensor) -> TensorView:
    """Writes embeddings as an encoder does."""
    generation = slab.assign_generation(0)
    location = Location(slab.mapping.path, slab.mapping.layout.data, rows.nbytes, generation)
    buffer = slab.writable(location.offset, rows.nbytes)
    copy_to_buffer(rows, buffer)
    return TensorView(dtype_name(rows.dtype), tuple(rows.shape), b"", buffer, location, slab.mapping)


def request(view: TensorView, offset: int) -> Request:
    """Returns a request with an image that begins at a position of its prompt."""
    parameters = {"ec_transfer_params": {IMAGE: tensor_reference(view)}}
    position = PlaceholderRange(offset=offset, length=view.shape[0])
    image = MultiModalFeatureSpec(data=None, modality="image", identifier=IMAGE, mm_position=position)
    sampling = SamplingParams(max_tokens=1, extra_args=parameters)
    return Request("a", [1] * (offset + view.shape[0] + 1), sampling, None, mm_features=[image])


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
        output: Any = SimpleNamespace(finished_req_ids=set())
        output.ec_connector_metadata = self.scheduler.build_connector_meta(output)
        with self.runner.maybe_get_output(output):
            pass


@pytest.fixture(params=["bfloat16", "float16"])
def config(request: pytest.FixtureRequest, tiny_llama: Path) -> VllmConfig:
    """The settings of a model with a dtype of GPUs."""
    name, module = EmbeddingsConnector.__name__, EmbeddingsConnector.__module__
    return VllmConfig(
        model_config=ModelConfig(model=str(tiny_llama), dtype=request.param),
        scheduler_config=SchedulerConfig.default_factory(max_num_batched_tokens=STEP_TOKENS, max_num_seqs=1),
        ec_transfer_config=ECTransferConfig(ec_connector=name, ec_connector_module_path=module, ec_role="ec_consumer"),
    )


@pytest.fixture
def engine(config: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> Engine:
    worker = EmbeddingsConnector(config, ECConnectorRole.WORKER)
    monkeypatch.setattr(ec_transfer_state, "_EC_CONNECTOR_AGENT", worker)
    cache = EncoderCache()
    runner = ActiveECConnector(config, cache.encoder_outputs)
    return Engine(EmbeddingsConnector(config, ECConnectorRole.SCHEDULER), runner, cache)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=dtype_name)
def test_embeddings_arrive_in_the_encoder_cache_in_the_dtype_of_the_model(
    config: VllmConfig, engine: Engine, slab: Slab, dtype: torch.dtype
) -> None:
    levels = torch.arange(6 * 16, dtype=dtype).view(6, 16)  # The levels of DeepStack are columns.

    engine.load(request(write(slab, levels), offset=3))

    (loaded,) = engine.cache.encoder_outputs.values()
    assert engine.cache.encoder_outputs.keys() == {IMAGE}
    assert loaded.dtype == config.model_config.dtype
    assert loaded.is_contiguous()
    assert torch.equal(loaded.float(), levels.float())


def test_loaded_embeddings_do_not_change_with_the_encoders_memory(engine: Engine, slab: Slab) -> None:
    view = write(slab, torch.ones(6, 16, dtype=torch.bfloat16))
    engine.load(request(view, offset=0))

    write(slab, torch.zeros(6, 16, dtype=torch.bfloat16))

    assert bool((engine.cache.encoder_outputs[IMAGE] == 1).all())


def test_embeddings_whose_memory_was_reused_fail_the_request(engine: Engine, slab: Slab) -> None:
    stale = request(write(slab, torch.ones(6, 16, dtype=torch.bfloat16)), offset=0)
    write(slab, torch.zeros(6, 16, dtype=torch.bfloat16))

    assert not engine.scheduler.ensure_cache_available(stale, 0)
    assert engine.scheduler.take_unavailable_requests() == {"a"}


def test_embeddings_after_the_step_that_drafts_read_ahead_are_loaded(
    config: VllmConfig, slab: Slab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VllmConfig, "num_prefill_lookahead_tokens", 1)
    scheduler = EmbeddingsConnector(config, ECConnectorRole.SCHEDULER)
    later = request(write(slab, torch.ones(6, 16, dtype=torch.bfloat16)), offset=STEP_TOKENS)

    assert scheduler.ensure_cache_available(later, 0)
    scheduler.update_state_after_alloc(later, 0)

    assert scheduler.build_connector_meta(None).tensors.keys() == {IMAGE}
