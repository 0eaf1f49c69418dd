"""Qwen2.5-Omni and Qwen3-Omni with images, audio and videos in one request, on every path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from cornserve_executors.base import InvalidRequestError
from tests.audio import as_audio, sound, spoiled_audio
from tests.images import as_image, noise
from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.media_chats import (
    MIXED_CONTENTS,
    OPTION_CONTENTS,
    SOUND_CONTENTS,
    MediaContent,
    media_chat,
    media_in,
)
from tests.integration.multimodal.media_tests import MEDIA_MARKS, check_paths, check_weights, generate
from tests.integration.multimodal.multimodal_tests import new_id
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


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 200])
async def test_audio_that_is_not_finite_changes_no_answer_of_other_requests(
    full_model: LLMEngine, language_only: LLMEngine, joint_encoder: LocalEncoder, count: int
) -> None:
    valid: MediaContent = ["Listen: ", as_audio(sound(1, 1.3)), as_image(noise(2, 84, 112)), "?"]
    paths = [(full_model, "rr"), (language_only, "ee")]
    expected = [await generate(engine, valid, kind, joint_encoder) for engine, kind in paths]

    async def refused(number: int) -> None:
        engine, kind = paths[number % 2]
        with pytest.raises(InvalidRequestError, match="the audio has a sample that is not within"):
            await generate(engine, [spoiled_audio(number), "?"], kind[0], joint_encoder)

    async def answers(engine: LLMEngine, kind: str) -> list[list[int]]:
        return [await generate(engine, valid, kind, joint_encoder) for _ in range(count // 2)]

    found, _ = await asyncio.gather(
        asyncio.gather(*(answers(*path) for path in paths)), asyncio.gather(*map(refused, range(count)))
    )

    for (engine, kind), during, tokens in zip(paths, found, expected, strict=True):
        assert [*during, await generate(engine, valid, kind, joint_encoder)] == [tokens] * (count // 2 + 1)


async def test_embeddings_that_are_not_finite_fail_their_request(
    language_only: LLMEngine, joint_encoder: LocalEncoder
) -> None:
    content: MediaContent = [as_image(noise(2, 84, 112)), "?"]
    (view,) = await joint_encoder.encode_all(media_in(content), "e")
    # The upper half of the number is NaN in float32 and bfloat16.
    spoiled = replace(view, view=memoryview(bytes(view.view[:-4]) + b"\xff\xff\xff\xff"))

    with pytest.raises(RuntimeError, match="the encoder sent embeddings that are not finite"):
        await language_only.generate(media_chat(content, "e"), new_id(), embeddings=[spoiled])

    assert await generate(language_only, content, "e", joint_encoder)


async def test_weights_of_the_encoders_are_loaded_only_if_with_enc_is_set(
    full_model: LLMEngine, language_only: LLMEngine
) -> None:
    await check_weights(full_model, language_only)
