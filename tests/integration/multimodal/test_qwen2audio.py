"""Qwen2-Audio, with and without its encoder: the tokens are those of vLLM's own server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.integration.multimodal.audio_chats import AUDIO_CONTENTS, AudioContent, audio_chat, audios_in, vllm_messages
from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.multimodal_tests import MARKS, new_id

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

pytestmark = [
    *MARKS,
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning"),  # raised by vLLM's resampler
]


@pytest.fixture(scope="module")
def model(tiny_qwen2audio: Path) -> Path:
    return tiny_qwen2audio


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def audio_encoder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalEncoder]:
    async with running_encoder(model, tmp_path_factory.mktemp("slab"), modality="audio") as encoder:
        yield encoder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vllm_responses(full_model: LLMEngine) -> dict[str, list[int]]:
    """The tokens that vLLM generates for prompts that it renders itself."""
    responses = {name: await vllm_tokens(full_model, content) for name, content in AUDIO_CONTENTS.items()}
    assert len({*map(tuple, responses.values())}) == len(responses)
    return responses


async def generate(engine: LLMEngine, content: AudioContent, kind: str, encoder: LocalEncoder) -> list[int]:
    embeddings = await encoder.encode_all(audios_in(content), kind)
    return (await engine.generate(audio_chat(content, kind), new_id(), embeddings=embeddings)).token_ids


async def vllm_tokens(engine: LLMEngine, content: AudioContent) -> list[int]:
    """Returns the tokens for a prompt that vLLM renders itself."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    renderer = engine._prompt_renderer._renderer
    request = ChatCompletionRequest(messages=vllm_messages(content))
    _, (prompt,) = await renderer.render_chat(request, skip_mm_cache=True)
    rendered = await engine._prompt_renderer.render(audio_chat(content), stream=False)
    outputs = [output async for output in engine._vllm.generate(prompt, rendered.sampling, new_id())]
    return list(outputs[-1].outputs[0].token_ids)


async def test_all_paths_generate_the_tokens_of_vllm_concurrently(
    full_model: LLMEngine,
    language_only: LLMEngine,
    audio_encoder: LocalEncoder,
    vllm_responses: dict[str, list[int]],
) -> None:
    jobs = [
        (engine, name, "".join(kind))
        for engine, kinds in ((full_model, "re"), (language_only, "e"))
        for name, content in AUDIO_CONTENTS.items()
        for kind in product(kinds, repeat=len(audios_in(content)))
    ]

    results = await asyncio.gather(
        *(generate(engine, AUDIO_CONTENTS[name], kind, audio_encoder) for engine, name, kind in jobs)
    )

    assert results == [vllm_responses[name] for _, name, _ in jobs]


async def test_weights_of_the_encoder_are_loaded_only_if_with_enc_is_set(
    full_model: LLMEngine, language_only: LLMEngine
) -> None:
    full, partial = await full_model.parameter_counts(), await language_only.parameter_counts()

    assert full["language_model"] == partial["language_model"] > 0
    assert {name for name, number in partial.items() if number} == {"language_model"}
