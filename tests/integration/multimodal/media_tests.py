"""Chats with audio and images on every path, for models that read audio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.integration.multimodal.encoder import LocalEncoder
from tests.integration.multimodal.media_chats import MediaContent, media_chat, media_in
from tests.integration.multimodal.multimodal_tests import MARKS, new_id
from tests.integration.multimodal.vllm_reference import vllm_tokens

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

MEDIA_MARKS = [
    *MARKS,
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning"),  # raised by vLLM's resampler
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # by transformers
]


async def check_paths(
    contents: Mapping[str, MediaContent],
    full_model: LLMEngine,
    language_only: LLMEngine | None,
    encoder: LocalEncoder,
) -> None:
    """Checks that all combinations of raw and encoded media, requested concurrently, get the tokens of vLLM alone."""
    expected = {name: await vllm_tokens(full_model, content) for name, content in contents.items()}
    assert len({*map(tuple, expected.values())}) == len(contents)
    engines = [(full_model, "re")] if language_only is None else [(full_model, "re"), (language_only, "e")]
    jobs = [
        (engine, name, "".join(kind))
        for engine, kinds in engines
        for name, content in contents.items()
        for kind in product(kinds, repeat=len(media_in(content)))
    ]

    results = await asyncio.gather(*(generate(engine, contents[name], kind, encoder) for engine, name, kind in jobs))

    found = {
        (engine is full_model, name, kind): tokens for (engine, name, kind), tokens in zip(jobs, results, strict=True)
    }
    assert found == {key: expected[key[1]] for key in found}


async def generate(engine: LLMEngine, content: MediaContent, kind: str, encoder: LocalEncoder) -> list[int]:
    embeddings = await encoder.encode_all(media_in(content), kind)
    return (await engine.generate(media_chat(content, kind), new_id(), embeddings=embeddings)).token_ids


async def check_weights(full_model: LLMEngine, language_only: LLMEngine) -> None:
    """Checks that the weights of encoders are loaded only if `with_enc` is set."""
    full, partial = await full_model.parameter_counts(), await language_only.parameter_counts()

    assert full["language_model"] == partial["language_model"] > 0
    assert {name for name, number in partial.items() if number} == {"language_model"}
