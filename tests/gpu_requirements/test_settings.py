"""vLLM accepts the settings of each executor on a GPU, as far as it checks them without a driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cornserve_tasklib.embedding import EmbeddingTask
from cornserve_tasklib.engine import EngineOptions
from cornserve_tasklib.llm import LLMTask
from cornserve_tasklib.scoring import ScoringTask
from cornserve_tasklib.thinker import ThinkerTask
from cornserve_tasklib.transcription import TranscriptionTask
from tests.gpu_requirements.cards import A100, B200, CARDS, H100, L4, T4, Card
from tests.models.cache import cached_model
from tests.models.lora_adapters import make_adapter
from tests.models.tiny_families import FAMILIES, TinyFamily, tiny_model

pytestmark = [pytest.mark.gpu_requirements, pytest.mark.timeout(1200)]

Validate = Callable[[Callable[[], object]], Any]

WORKER = "vllm.v1.worker.gpu_worker.Worker"


def cuda_graphs(config: Any) -> str:
    return str(config.compilation_config.cudagraph_mode.name)


@dataclass(frozen=True, slots=True)
class Batch:
    """vLLM's default limits of a batch."""

    requests: int
    tokens: int


def batch(config: Any) -> Batch:
    scheduler = config.scheduler_config
    return Batch(scheduler.max_num_seqs, scheduler.max_num_batched_tokens)


@pytest.fixture(scope="session")
def llama(models: Path) -> str:
    return str(cached_model(models / "tiny_llama.py", models / "byte_tokenizer.py"))


def test_a_language_model_uses_the_model_runner_and_the_graphs_for_gpus(validated: Validate, llama: str) -> None:
    from cornserve_executors.llm.engine import LLMEngine

    config = validated(lambda: LLMEngine(LLMTask(model_id=llama)))

    assert config.device_config.device_type == "cuda"
    assert str(config.model_config.dtype) == "torch.bfloat16"
    assert config.use_v2_model_runner
    assert config.scheduler_config.async_scheduling
    assert cuda_graphs(config) == "FULL_AND_PIECEWISE"
    assert config.parallel_config.worker_cls == WORKER
    assert config.parallel_config.distributed_executor_backend == "uni"


def test_options_of_gpus_reach_vllm(validated: Validate, llama: str) -> None:
    from cornserve_executors.llm.engine import LLMEngine

    options = EngineOptions(
        dtype="float16",
        tensor_parallel_size=2,
        gpu_memory_utilization=0.5,
        enforce_eager=True,
        engine_args={"kv_cache_dtype": "fp8", "block_size": 64},
    )

    config = validated(lambda: LLMEngine(LLMTask(model_id=llama, options=options)))

    assert str(config.model_config.dtype) == "torch.float16"
    assert config.parallel_config.world_size == 2
    assert config.parallel_config.distributed_executor_backend == "mp"
    assert config.cache_config.gpu_memory_utilization == 0.5
    assert config.cache_config.cache_dtype == "fp8"
    assert config.cache_config.block_size == 64
    assert cuda_graphs(config) == "NONE"


@pytest.mark.parametrize("card", CARDS, indirect=True, ids=str)
def test_auto_selects_a_dtype_that_the_card_supports(card: Card, validated: Validate, llama: str) -> None:
    from cornserve_executors.llm.engine import LLMEngine

    config = validated(lambda: LLMEngine(LLMTask(model_id=llama)))

    assert str(config.model_config.dtype) == ("torch.float16" if card == T4 else "torch.bfloat16")


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (H100, Batch(1024, 8192)),
        (B200, Batch(1024, 16384)),
        (A100, Batch(256, 2048)),
        (L4, Batch(256, 2048)),
    ],
    indirect=["card"],
    ids=str,
)
def test_batches_are_as_large_as_those_of_vllms_server(
    card: Card, expected: Batch, validated: Validate, llama: str
) -> None:
    from cornserve_executors.llm.engine import LLMEngine

    assert batch(validated(lambda: LLMEngine(LLMTask(model_id=llama)))) == expected


def test_adapters_are_accepted(validated: Validate, llama: str, tmp_path: Path) -> None:
    from cornserve_executors.llm.engine import LLMEngine

    adapter = make_adapter(Path(llama), tmp_path / "adapter", ["q_proj"], seed=0, rank=16)
    options = EngineOptions(lora_modules={"corn": str(adapter)})

    config = validated(lambda: LLMEngine(LLMTask(model_id=llama, options=options)))

    assert config.lora_config.max_lora_rank == 16
    assert config.use_v2_model_runner


@pytest.mark.parametrize("with_enc", [True, False], ids=["with its encoder", "without its encoder"])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_multimodal_model_receives_embeddings(validated: Validate, family: TinyFamily, *, with_enc: bool) -> None:
    from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

    from cornserve_executors.llm.connector import EmbeddingsConnector
    from cornserve_executors.llm.engine import LLMEngine

    config = validated(lambda: LLMEngine(LLMTask(model_id=str(family.path), with_enc=with_enc)))

    assert ECConnectorFactory.get_connector_class(config.ec_transfer_config) is EmbeddingsConnector
    assert config.use_v2_model_runner
    # The model runner loads embeddings only for models with multimodal inputs.
    assert config.model_config.supports_multimodal_inputs


@pytest.mark.parametrize("family", ["qwen25omni", "qwen3omni"])
def test_a_thinker_keeps_hidden_states_with_full_graphs(validated: Validate, family: str) -> None:
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    from cornserve_executors.llm.engine import LLMEngine
    from cornserve_executors.llm.hidden_states import HiddenStatesConnector, KeepsHiddenStates

    config = validated(lambda: LLMEngine(ThinkerTask(model_id=str(tiny_model(family)))))

    assert KVConnectorFactory.get_connector_class(config.kv_transfer_config) is HiddenStatesConnector
    model_class, _ = config.model_config.registry.resolve_model_cls(
        config.model_config.architectures, config.model_config
    )
    assert issubclass(model_class, KeepsHiddenStates)
    assert cuda_graphs(config) == "FULL_AND_PIECEWISE"


def test_an_embedding_model_is_accepted(validated: Validate, models: Path) -> None:
    from cornserve_executors.embedding.engine import EmbeddingEngine

    bert = cached_model(models / "tiny_bert.py", models / "byte_tokenizer.py")

    config = validated(lambda: EmbeddingEngine(EmbeddingTask(model_id=str(bert))))

    assert config.model_config.runner_type == "pooling"
    assert config.parallel_config.worker_cls == WORKER


def test_a_reranker_is_accepted(validated: Validate, models: Path) -> None:
    from cornserve_executors.scoring.engine import ScoringEngine

    reranker = cached_model(models / "tiny_reranker.py", models / "tiny_bert.py", models / "byte_tokenizer.py")

    config = validated(lambda: ScoringEngine(ScoringTask(model_id=str(reranker))))

    assert config.model_config.runner_type == "pooling"
    assert config.parallel_config.worker_cls == WORKER


def test_a_transcription_model_is_accepted(validated: Validate, models: Path) -> None:
    from cornserve_executors.transcription.engine import TranscriptionEngine

    whisper = cached_model(models / "tiny_whisper.py", models / "random_weights.py")

    config = validated(lambda: TranscriptionEngine(TranscriptionTask(model_id=str(whisper))))

    assert config.model_config.is_encoder_decoder
    assert config.parallel_config.worker_cls == WORKER


@pytest.mark.usefixtures("card")
def test_the_extension_fits_the_worker_for_gpus() -> None:
    from vllm.v1.worker.gpu_worker import Worker

    from cornserve_executors.llm.worker_extension import WorkerExtension

    assert [name for name in dir(WorkerExtension) if not name.startswith("__") and hasattr(Worker, name)] == []
