from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytest_asyncio

from cornserve_executors.llm.engine import LLMEngine
from cornserve_executors.vllm import settings
from cornserve_tasklib import EngineOptions, LLMTask
from tests.integration.multimodal.chats import CONTENTS
from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.transformers_reference import TransformersReference


@pytest.fixture(scope="module")
def lora_modules() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def engines(model: Path, lora_modules: dict[str, str]) -> Iterator[dict[bool, LLMEngine]]:
    """An engine with an encoder and an engine without an encoder. Their KV caches hold one context."""
    settings.prepare_environment()
    started = {
        with_enc: LLMEngine(
            LLMTask(
                model_id=str(model),
                options=EngineOptions(max_model_len=3968, kv_cache_memory_bytes=4 << 20, lora_modules=lora_modules),
                with_enc=with_enc,
            )
        )
        for with_enc in (True, False)
    }
    yield started
    with ThreadPoolExecutor() as threads:  # Each shutdown takes seconds.
        list(threads.map(LLMEngine.shutdown, started.values()))


@pytest.fixture(scope="module")
def full_model(engines: dict[bool, LLMEngine]) -> LLMEngine:
    return engines[True]


@pytest.fixture(scope="module")
def language_only(engines: dict[bool, LLMEngine]) -> LLMEngine:
    return engines[False]


@pytest.fixture(scope="module")
def expected(model: Path) -> dict[str, list[int]]:
    transformers = TransformersReference(model)
    return {name: transformers.generate(content) for name, content in CONTENTS.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encoder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalEncoder]:
    async with running_encoder(model, tmp_path_factory.mktemp("slab")) as encoder:
        yield encoder
