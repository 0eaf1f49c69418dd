"""Embeddings between an encoder's shared memory and the encoder cache of vLLM's model runner for GPUs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cornserve.transport.memory.segment import PAGE, TOKEN_BYTES
from cornserve.transport.memory.slab import Slab


@pytest.fixture(scope="module")
def connected() -> Any:
    """A module that imports vLLM, which takes seconds."""
    from tests.integration.multimodal import connected_engine

    return connected_engine


@pytest.fixture
async def slab(tmp_path: Path) -> AsyncIterator[Slab]:
    """The shared memory of an encoder."""
    made = Slab(tmp_path, bytes(TOKEN_BYTES), 16 * PAGE)
    await made.create()
    yield made
    await made.remove()


@pytest.fixture(params=["bfloat16", "float16"])
def config(request: pytest.FixtureRequest, connected: Any, tiny_llama: Path) -> Any:
    """The settings of a model with a dtype of GPUs."""
    return connected.create_config(tiny_llama, request.param)


@pytest.fixture
def engine(connected: Any, config: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    return connected.create_engine(config, monkeypatch)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_embeddings_arrive_in_the_encoder_cache_in_the_dtype_of_the_model(
    connected: Any, config: Any, engine: Any, slab: Slab, dtype: str
) -> None:
    levels = connected.levels(dtype)

    engine.load(connected.request(connected.write(slab, levels), offset=3))

    (loaded,) = engine.cache.encoder_outputs.values()
    assert engine.cache.encoder_outputs.keys() == {connected.IMAGE}
    assert loaded.dtype == config.model_config.dtype
    assert loaded.is_contiguous()
    assert loaded.float().equal(levels.float())


def test_loaded_embeddings_do_not_change_with_the_encoders_memory(connected: Any, engine: Any, slab: Slab) -> None:
    view = connected.write(slab, connected.embeddings(1))
    engine.load(connected.request(view, offset=0))

    connected.write(slab, connected.embeddings(0))

    assert bool((engine.cache.encoder_outputs[connected.IMAGE] == 1).all())


def test_embeddings_whose_memory_was_reused_fail_the_request(connected: Any, engine: Any, slab: Slab) -> None:
    stale = connected.request(connected.write(slab, connected.embeddings(1)), offset=0)
    connected.write(slab, connected.embeddings(0))

    assert not engine.scheduler.ensure_cache_available(stale, 0)
    assert engine.scheduler.take_unavailable_requests() == {"a"}


def test_embeddings_after_the_step_that_drafts_read_ahead_are_loaded(
    connected: Any, config: Any, slab: Slab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected.VllmConfig, "num_prefill_lookahead_tokens", 1)
    scheduler = connected.EmbeddingsConnector(config, connected.ECConnectorRole.SCHEDULER)
    later = connected.request(connected.write(slab, connected.embeddings(1)), offset=connected.STEP_TOKENS)

    assert scheduler.ensure_cache_available(later, 0)
    scheduler.update_state_after_alloc(later, 0)

    assert scheduler.build_connector_meta(connected.output()).tensors.keys() == {connected.IMAGE}


def test_the_worker_gets_the_inputs_of_media_whose_kv_cache_exists(connected: Any, engine: Any, slab: Slab) -> None:
    request, sent = connected.cached_request(connected.write(slab, connected.embeddings(1)))
    assert sent.mm_features[0].data is None

    engine.scheduler.ensure_cache_available(request, request.num_computed_tokens)
    engine.scheduler.build_connector_meta(connected.output(sent))

    assert sent.mm_features[0].data is request.mm_features[0].data
