"""Qwen2-Audio, with and without its encoder: the tokens are those of vLLM's own server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.media_chats import AUDIO_CONTENTS
from tests.integration.multimodal.media_tests import MEDIA_MARKS, check_paths, check_weights

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

pytestmark = [pytest.mark.slow, *MEDIA_MARKS]


@pytest.fixture(scope="module")
def model(tiny_qwen2audio: Path) -> Path:
    return tiny_qwen2audio


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def audio_encoder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalEncoder]:
    async with running_encoder(model, tmp_path_factory.mktemp("slab"), modality="audio") as encoder:
        yield encoder


async def test_all_paths_generate_the_tokens_of_vllm_concurrently(
    full_model: LLMEngine, language_only: LLMEngine, audio_encoder: LocalEncoder
) -> None:
    await check_paths(AUDIO_CONTENTS, full_model, language_only, audio_encoder)


async def test_weights_of_the_encoder_are_loaded_only_if_with_enc_is_set(
    full_model: LLMEngine, language_only: LLMEngine
) -> None:
    await check_weights(full_model, language_only)
