"""What holds for every family of multimodal models; a test module for each of them says which model it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cornserve.transport import StaleError
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.llm.engine import LLMEngine
from cornserve_tasklib import ChatChunk, ChatMessage, ChatRequest
from cornserve_tasklib.image import ImagePart
from tests.images import as_image, noise
from tests.integration.multimodal.chats import CONTENTS, TOKENS, Part, chat, images_in, kinds
from tests.integration.multimodal.encoder import Encoder, running_encoder

ROLES = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # vLLM uses its own field.
]

_ids = count()

contents = pytest.mark.parametrize("name", CONTENTS)


class RoleTests:
    @contents
    async def test_an_engine_with_an_encoder_answers_as_transformers(
        self, whole: LLMEngine, expected: dict[str, list[int]], name: str
    ) -> None:
        assert await answer(whole, CONTENTS[name]) == expected[name]

    @contents
    async def test_an_engine_without_one_answers_so_when_another_has_encoded(
        self, language_only: LLMEngine, encoder: Encoder, expected: dict[str, list[int]], name: str
    ) -> None:
        (kind,) = kinds(CONTENTS[name], "e")

        assert await answer(language_only, CONTENTS[name], kind, encoder) == expected[name]

    @contents
    async def test_an_engine_with_one_takes_any_image_encoded(
        self, whole: LLMEngine, encoder: Encoder, expected: dict[str, list[int]], name: str
    ) -> None:
        for kind in kinds(CONTENTS[name], "re"):
            assert await answer(whole, CONTENTS[name], kind, encoder) == expected[name], kind

    async def test_mixed_batches_are_answered_as_each_alone(
        self, whole: LLMEngine, language_only: LLMEngine, encoder: Encoder, expected: dict[str, list[int]]
    ) -> None:
        jobs = [
            (engine, name, kind)
            for engine, choice in ((whole, "re"), (language_only, "e"))
            for name, content in CONTENTS.items()
            for kind in kinds(content, choice)
        ]

        answers = await asyncio.gather(*(answer(engine, CONTENTS[name], kind, encoder) for engine, name, kind in jobs))

        assert answers == [expected[name] for _, name, _ in jobs]

    async def test_another_image_changes_the_answer(
        self, whole: LLMEngine, language_only: LLMEngine, encoder: Encoder, expected: dict[str, list[int]]
    ) -> None:
        other: list[Part] = [noise(100, 112, 84), *CONTENTS["one image"][1:]]

        raw, encoded = await answer(whole, other), await answer(language_only, other, "e", encoder)

        assert raw == encoded != expected["one image"]

    async def test_weights_of_the_encoder_are_loaded_only_where_it_is_wanted(
        self, whole: LLMEngine, language_only: LLMEngine
    ) -> None:
        all, some = await whole.parameter_counts(), await language_only.parameter_counts()

        assert all["language_model"] == some["language_model"] > 0
        assert {name for name, number in some.items() if number} == {"language_model"}
        assert sum(all.values()) > 1.5 * sum(some.values())

    async def test_an_image_that_was_taken_back_fails_its_request_only(
        self, whole: LLMEngine, language_only: LLMEngine, encoder: Encoder, expected: dict[str, list[int]]
    ) -> None:
        content: list[Part] = [noise(101, 112, 84), "?"]
        for engine in (whole, language_only):
            neighbour = asyncio.create_task(answer(engine, CONTENTS["one image"], "e", encoder))
            received, production = await encoder.encode(images_in(content)[0])
            production.revoke()

            with pytest.raises(StaleError):
                await engine.generate(chat(content, "e"), new_id(), received=[received])

            assert await neighbour == expected["one image"]
            assert await answer(engine, content, "e", encoder) == await answer(whole, content)

    async def test_an_image_of_the_wrong_size_fails_its_request_only(
        self, language_only: LLMEngine, encoder: Encoder, expected: dict[str, list[int]]
    ) -> None:
        content = CONTENTS["one image"]
        received, _ = await encoder.encode(images_in(content)[0], rows=70)

        with pytest.raises(RuntimeError, match=r"messages\[0\].content\[0\]: the encoder has sent .*70"):
            await language_only.generate(chat(content, "e"), new_id(), received=[received])

        assert await answer(language_only, content, "e", encoder) == expected["one image"]

    async def test_embeddings_of_another_precision_are_converted(
        self, language_only: LLMEngine, model: Path, tmp_path: Path
    ) -> None:
        async with running_encoder(model, tmp_path, dtype="bfloat16") as encoder:
            assert len(await answer(language_only, [noise(500, 112, 84), "?"], "e", encoder)) == TOKENS

    async def test_a_request_that_loses_its_place_reads_its_images_again(
        self, language_only: LLMEngine, encoder: Encoder
    ) -> None:
        """A third of them fits into the KV cache, until they get longer."""
        contents: list[list[Part]] = [[noise(200 + number, 84, 84), "a" * 70] for number in range(24)]

        async def answers(some: Sequence[Sequence[Part]]) -> list[list[int]]:
            return await asyncio.gather(*(answer(language_only, one, "e", encoder, max_tokens=150) for one in some))

        expected = [tokens for start in range(0, 24, 8) for tokens in await answers(contents[start : start + 8])]
        before = preemptions(language_only)

        assert await answers(contents) == expected
        assert preemptions(language_only) > before

    async def test_a_prompt_may_be_longer_than_a_step(
        self, whole: LLMEngine, language_only: LLMEngine, encoder: Encoder
    ) -> None:
        content: list[Part] = [part for number in range(10) for part in (noise(300 + number, 448, 448), "b" * 120)]

        raw, encoded = await answer(whole, content), await answer(language_only, content, "e" * 10, encoder)

        assert raw == encoded

    async def test_several_large_images_are_answered_as_when_another_has_encoded_them(
        self, whole: LLMEngine, encoder: Encoder
    ) -> None:
        content: list[Part] = [noise(400, 2100, 1000), "and", noise(401, 1000, 2100), "?"]

        assert await answer(whole, content) == await answer(whole, content, "ee", encoder)

    async def test_an_answer_that_another_has_begun_goes_on(self, language_only: LLMEngine, encoder: Encoder) -> None:
        content = CONTENTS["several of different sizes"]
        request, received = chat(content, "ee"), await encoder.all(images_in(content), "ee")
        chunks: list[ChatChunk] = []

        async def send(chunk: bytes) -> None:
            chunks.append(ChatChunk.model_validate_json(chunk))

        uninterrupted = await language_only.generate(request, new_id(), send, received=received)
        begun, chunks = chunks[: TOKENS // 2], []
        response = await language_only.generate(request, new_id(), send, begun, received)

        assert response == uninterrupted
        assert "".join(chunk.text for chunk in [*begun, *chunks]) == response.text

    async def test_a_raw_image_is_refused_where_no_encoder_is(self, language_only: LLMEngine) -> None:
        with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: .* no encoder"):
            await answer(language_only, CONTENTS["one image"])

    async def test_what_is_no_image_is_named(self, whole: LLMEngine) -> None:
        image = as_image(noise(1, 20, 20)).model_copy(update={"format": "JPEG"})
        request = ChatRequest(messages=[ChatMessage(role="user", content=[ImagePart(type="image", image=image)])])

        with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: not a valid JPEG image"):
            await whole.generate(request, new_id())


def new_id() -> str:
    return f"request/{next(_ids)}"


async def answer(
    engine: LLMEngine, content: Sequence[Part], kind: str = "", encoder: Encoder | None = None, **fields: Any
) -> list[int]:
    received = [] if encoder is None else await encoder.all(images_in(content), kind)
    return (await engine.generate(chat(content, kind, **fields), new_id(), received=received)).token_ids


def preemptions(engine: LLMEngine) -> float:
    (family,) = (family for family in engine.metrics() if family.name.endswith("num_preemptions"))
    return family.samples[0].value
