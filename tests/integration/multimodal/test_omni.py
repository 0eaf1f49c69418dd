"""Qwen2.5-Omni and Qwen3-Omni with images, audio and videos in one request, on every path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.audio import as_audio, sound
from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.media_chats import MIXED_CONTENTS, OPTION_CONTENTS, SOUND_CONTENTS, MediaContent
from tests.integration.multimodal.media_tests import MEDIA_MARKS, check_paths, check_weights, generate
from tests.integration.multimodal.vllm_reference import vllm_tokens
from tests.models.tiny_families import tiny_model

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

pytestmark = MEDIA_MARKS


@pytest.fixture(scope="module", params=["qwen25omni", pytest.param("qwen3omni", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> Path:
    return tiny_model(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def joint_encoder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalEncoder]:
    async with running_encoder(model, tmp_path_factory.mktemp("slab"), modality=["image", "audio", "video"]) as encoder:
        yield encoder


async def test_all_paths_generate_the_tokens_of_vllm_concurrently(
    full_model: LLMEngine, language_only: LLMEngine, joint_encoder: LocalEncoder
) -> None:
    await check_paths(MIXED_CONTENTS, full_model, language_only, joint_encoder)


@pytest.mark.slow
async def test_all_paths_generate_the_tokens_of_vllm_for_media_with_options(
    full_model: LLMEngine, language_only: LLMEngine, joint_encoder: LocalEncoder
) -> None:
    await check_paths(OPTION_CONTENTS, full_model, language_only, joint_encoder)


@pytest.mark.slow
async def test_all_paths_generate_the_tokens_of_vllm_for_videos_with_sound(
    full_model: LLMEngine, language_only: LLMEngine, joint_encoder: LocalEncoder
) -> None:
    await check_paths(SOUND_CONTENTS, full_model, language_only, joint_encoder)


async def test_audio_of_less_than_a_second_has_the_tokens_of_the_audio_alone(
    full_model: LLMEngine, language_only: LLMEngine, joint_encoder: LocalEncoder
) -> None:
    # Not concurrently: for Qwen3-Omni, vLLM's embeddings of such audio depend on the other audio in the batch.
    content: MediaContent = [as_audio(sound(2, 0.6)), "?"]
    expected = await vllm_tokens(full_model, content)

    for engine, kind in ((full_model, "r"), (full_model, "e"), (language_only, "e")):
        assert await generate(engine, content, kind, joint_encoder) == expected, kind


async def test_weights_of_the_encoders_are_loaded_only_if_with_enc_is_set(
    full_model: LLMEngine, language_only: LLMEngine
) -> None:
    await check_weights(full_model, language_only)
