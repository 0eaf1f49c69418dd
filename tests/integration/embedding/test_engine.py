"""Chats with media become the vectors that vLLM's own server computes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.vllm import settings
from cornserve_tasklib import EmbeddingRequest, EmbeddingTask, EngineOptions
from tests.audio import as_audio, sound
from tests.images import as_image, noise
from tests.integration.multimodal.media_chats import (
    MIXED_CONTENTS,
    VIDEO_CONTENTS,
    MediaContent,
    media_chat,
    vllm_messages,
)
from tests.integration.multimodal.multimodal_tests import MARKS, new_id
from tests.models.tiny_families import tiny_model

if TYPE_CHECKING:
    from cornserve_executors.embedding.engine import EmbeddingEngine

pytestmark = MARKS

IMAGE_CONTENTS: dict[str, MediaContent] = {
    "text": ["What is corn?"],
    "image": [as_image(noise(1, 112, 84)), "What is it?"],
    "two images": [as_image(noise(2, 60, 90)), "and", as_image(noise(3, 84, 84))],
}

CONTENTS = {"qwen3vl": IMAGE_CONTENTS | VIDEO_CONTENTS, "qwen25omni": MIXED_CONTENTS}
"""The chats for each model."""


@pytest.fixture(scope="module", params=["qwen3vl", pytest.param("qwen25omni", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def engine(model: str, fork_variables: dict[str, str]) -> Iterator[EmbeddingEngine]:
    settings.prepare_environment()
    from cornserve_executors.embedding.engine import EmbeddingEngine

    options = EngineOptions(max_model_len=3968, kv_cache_memory_bytes=4 << 20)
    with patch.dict(os.environ, fork_variables):
        engine = EmbeddingEngine(EmbeddingTask(model_id=str(tiny_model(model)), options=options))
    yield engine
    engine.shutdown()


async def embed(engine: EmbeddingEngine, content: MediaContent) -> tuple[list[float], int]:
    response = await engine.embed(EmbeddingRequest(messages=media_chat(content).messages), new_id())
    (vector,) = response.vectors
    return vector.tolist(), response.prompt_tokens


async def embed_with_vllm(engine: EmbeddingEngine, content: MediaContent) -> tuple[list[float], int]:
    from vllm.entrypoints.pooling.embed.protocol import EmbeddingChatRequest

    request = EmbeddingChatRequest(messages=vllm_messages(content))
    _, (prompt,) = await engine._vllm.renderer.render_chat_async(
        [request.messages],
        request.build_chat_params(None, "auto"),
        request.build_tok_params(engine._vllm.model_config),
        skip_mm_cache=True,
    )
    outputs = [output async for output in engine._vllm.encode(prompt, request.to_pooling_params(), new_id())]
    return outputs[-1].outputs.data.float().tolist(), len(outputs[-1].prompt_token_ids)


async def test_chats_have_the_vectors_of_vllm_concurrently(engine: EmbeddingEngine, model: str) -> None:
    contents = CONTENTS[model]
    expected = {name: await embed_with_vllm(engine, content) for name, content in contents.items()}
    assert len({tuple(vector) for vector, _ in expected.values()}) == len(contents)

    results = await asyncio.gather(*(embed(engine, content) for content in contents.values()))

    for (vector, tokens), (wanted, count) in zip(results, expected.values(), strict=True):
        assert tokens == count
        assert vector == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("model", ["qwen3vl"], indirect=True)
async def test_media_that_the_model_does_not_read_are_refused(engine: EmbeddingEngine) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: .* does not accept audio"):
        await embed(engine, [as_audio(sound(0))])
