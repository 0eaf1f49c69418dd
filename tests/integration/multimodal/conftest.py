from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.integration.multimodal.chats import CONTENTS
from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.engine import start_engine
from tests.integration.multimodal.transformers_reference import TransformersReference

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine


@pytest.fixture(scope="module")
def lora_modules() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def engines(
    model: Path, lora_modules: dict[str, str], fork_variables: dict[str, str]
) -> Iterator[dict[bool, LLMEngine]]:
    """An engine with an encoder and an engine without an encoder."""
    started = {
        with_enc: start_engine(model, fork_variables, with_enc=with_enc, lora_modules=lora_modules)
        for with_enc in (True, False)
    }
    yield started
    with ThreadPoolExecutor() as threads:  # Each shutdown takes seconds.
        list(threads.map(lambda engine: engine.shutdown(), started.values()))


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
