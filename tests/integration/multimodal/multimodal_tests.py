"""Tests for every family of multimodal models. A test module for each family provides its `model` fixture."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve.transport import StaleError
from cornserve_executors.base import InvalidRequestError
from cornserve_tasklib import ChatChunk, ChatMessage, ChatRequest
from cornserve_tasklib.media import MediaPart
from tests.images import as_image, noise
from tests.integration.multimodal.chats import CONTENTS, TOKENS, Part, chat, combinations, images_in
from tests.integration.multimodal.encoder import LocalEncoder, running_encoder

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

MARKS = [
    pytest.mark.filterwarnings("ignore:Passing `min_pixels` and `max_pixels`:FutureWarning"),  # by vLLM's own code
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # raised by vLLM's own code
]

_ids = count()

contents = pytest.mark.parametrize("name", CONTENTS)


class MultimodalTests:
    @contents
    async def test_an_engine_with_an_encoder_generates_the_tokens_of_transformers(
        self, full_model: LLMEngine, expected: dict[str, list[int]], name: str
    ) -> None:
        assert await generate(full_model, CONTENTS[name]) == expected[name]

    @contents
    async def test_an_engine_without_an_encoder_generates_the_same_tokens(
        self, language_only: LLMEngine, encoder: LocalEncoder, expected: dict[str, list[int]], name: str
    ) -> None:
        (kind,) = combinations(CONTENTS[name], "e")

        assert await generate(language_only, CONTENTS[name], kind, encoder) == expected[name]

    @contents
    async def test_an_engine_with_an_encoder_accepts_raw_and_encoded_images(
        self, full_model: LLMEngine, encoder: LocalEncoder, expected: dict[str, list[int]], name: str
    ) -> None:
        for kind in combinations(CONTENTS[name], "re"):
            assert await generate(full_model, CONTENTS[name], kind, encoder) == expected[name], kind

    async def test_concurrent_requests_get_the_same_tokens_as_alone(
        self, full_model: LLMEngine, language_only: LLMEngine, encoder: LocalEncoder, expected: dict[str, list[int]]
    ) -> None:
        jobs = [
            (engine, name, kind)
            for engine, choice in ((full_model, "re"), (language_only, "e"))
            for name, content in CONTENTS.items()
            for kind in combinations(content, choice)
        ]

        results = await asyncio.gather(
            *(generate(engine, CONTENTS[name], kind, encoder) for engine, name, kind in jobs)
        )

        assert results == [expected[name] for _, name, _ in jobs]

    async def test_another_image_changes_the_response(
        self, full_model: LLMEngine, language_only: LLMEngine, encoder: LocalEncoder, expected: dict[str, list[int]]
    ) -> None:
        other: list[Part] = [noise(100, 112, 84), *CONTENTS["one image"][1:]]

        raw, encoded = await generate(full_model, other), await generate(language_only, other, "e", encoder)

        assert raw == encoded != expected["one image"]

    async def test_weights_of_the_encoder_are_loaded_only_if_with_enc_is_set(
        self, full_model: LLMEngine, language_only: LLMEngine
    ) -> None:
        full, partial = await full_model.parameter_counts(), await language_only.parameter_counts()

        assert full["language_model"] == partial["language_model"] > 0
        assert {name for name, number in partial.items() if number} == {"language_model"}
        assert sum(full.values()) > sum(partial.values())

    async def test_a_revoked_image_fails_only_its_request(
        self, full_model: LLMEngine, language_only: LLMEngine, encoder: LocalEncoder, expected: dict[str, list[int]]
    ) -> None:
        content: list[Part] = [noise(101, 112, 84), "?"]
        for engine in (full_model, language_only):
            neighbour = asyncio.create_task(generate(engine, CONTENTS["one image"], "e", encoder))
            tensor, production = await encoder.encode(images_in(content)[0])
            production.revoke()

            with pytest.raises(StaleError):
                await engine.generate(chat(content, "e"), new_id(), embeddings=[tensor])

            assert await neighbour == expected["one image"]
            assert await generate(engine, content, "e", encoder) == await generate(full_model, content)

    async def test_embeddings_of_the_wrong_shape_fail_only_their_request(
        self, language_only: LLMEngine, encoder: LocalEncoder, expected: dict[str, list[int]]
    ) -> None:
        content = CONTENTS["one image"]
        tensor, _ = await encoder.encode(images_in(content)[0], rows=71)

        with pytest.raises(RuntimeError, match=r"messages\[0\].content\[0\]: the encoder sent embeddings .*71"):
            await language_only.generate(chat(content, "e"), new_id(), embeddings=[tensor])

        assert await generate(language_only, content, "e", encoder) == expected["one image"]

    async def test_embeddings_of_another_dtype_are_converted(
        self, language_only: LLMEngine, model: Path, tmp_path: Path
    ) -> None:
        async with running_encoder(model, tmp_path, dtype="bfloat16") as encoder:
            assert len(await generate(language_only, [noise(500, 112, 84), "?"], "e", encoder)) == TOKENS

    @pytest.mark.slow
    async def test_a_preempted_request_reads_its_images_again(
        self, language_only: LLMEngine, encoder: LocalEncoder
    ) -> None:
        """The KV cache holds a third of the requests, and fewer as they grow."""
        contents: list[list[Part]] = [[noise(200 + number, 84, 84), "a" * 70] for number in range(24)]

        async def generate_all(contents: Sequence[Sequence[Part]]) -> list[list[int]]:
            return await asyncio.gather(
                *(generate(language_only, content, "e", encoder, max_tokens=150) for content in contents)
            )

        expected = [tokens for start in range(0, 24, 8) for tokens in await generate_all(contents[start : start + 8])]
        before = preemptions(language_only)

        assert await generate_all(contents) == expected
        assert preemptions(language_only) > before

    @pytest.mark.slow
    async def test_a_prompt_may_exceed_an_engine_step(
        self, full_model: LLMEngine, language_only: LLMEngine, encoder: LocalEncoder
    ) -> None:
        content: list[Part] = [part for number in range(10) for part in (noise(300 + number, 448, 448), "b" * 120)]

        raw, encoded = await generate(full_model, content), await generate(language_only, content, "e" * 10, encoder)

        assert raw == encoded

    @pytest.mark.slow
    async def test_several_large_raw_images_give_the_same_tokens_as_encoded_ones(
        self, full_model: LLMEngine, encoder: LocalEncoder
    ) -> None:
        content: list[Part] = [noise(400, 2100, 1000), "and", noise(401, 1000, 2100), "?"]

        assert await generate(full_model, content) == await generate(full_model, content, "ee", encoder)

    async def test_a_response_of_another_executor_is_continued(
        self, language_only: LLMEngine, encoder: LocalEncoder
    ) -> None:
        content = CONTENTS["several of different sizes"]
        request, embeddings = chat(content, "ee"), await encoder.encode_all(images_in(content), "ee")
        chunks: list[ChatChunk] = []

        async def deliver(chunk: ChatChunk) -> None:
            chunks.append(chunk)

        uninterrupted = await language_only.generate(request, new_id(), deliver, embeddings=embeddings)
        delivered, chunks = chunks[: TOKENS // 2], []
        response = await language_only.generate(request, new_id(), deliver, delivered, embeddings)

        assert response.usage.cached_tokens <= response.usage.prompt_tokens
        assert response == uninterrupted.model_copy(update={"usage": response.usage})
        assert "".join(chunk.text for chunk in [*delivered, *chunks]) == response.text

    async def test_a_raw_image_is_rejected_without_an_encoder(self, language_only: LLMEngine) -> None:
        with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: .* no encoder"):
            await generate(language_only, CONTENTS["one image"])

    async def test_a_broken_image_is_named(self, full_model: LLMEngine) -> None:
        image = as_image(noise(1, 20, 20)).model_copy(update={"format": "JPEG"})
        request = ChatRequest(messages=[ChatMessage(role="user", content=[MediaPart(type="media", media=image)])])

        with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: not a valid JPEG image"):
            await full_model.generate(request, new_id())


def new_id() -> str:
    return f"request/{next(_ids)}"


async def generate(
    engine: LLMEngine, content: Sequence[Part], kind: str = "", encoder: LocalEncoder | None = None, **fields: Any
) -> list[int]:
    embeddings = [] if encoder is None else await encoder.encode_all(images_in(content), kind)
    return (await engine.generate(chat(content, kind, **fields), new_id(), embeddings=embeddings)).token_ids


def preemptions(engine: LLMEngine) -> float:
    (family,) = (family for family in engine.metrics() if family.name.endswith("num_preemptions"))
    return family.samples[0].value
