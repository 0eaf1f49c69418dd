"""LLaVA-NeXT, whose separate encoder is vLLM's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cornserve_tasklib.media import EncodedMedia, PromptUpdates
from tests.integration.multimodal.chats import CONTENTS, chat, images_in
from tests.integration.multimodal.encoder import LocalEncoder
from tests.integration.multimodal.multimodal_tests import MARKS, MultimodalTests, generate, new_id
from tests.models.tiny_families import whole_model

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

pytestmark = [pytest.mark.slow, *MARKS]


@pytest.fixture(scope="module")
def model() -> Path:
    return whole_model("whole", "llava_next")


class TestLlavaNext(MultimodalTests):
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"target": [7, 7]}, "its changes of the prompt do not apply"),
            ({"tokens": [5, 5, 5]}, "the encoder sent .* rows instead of 3: check that it has the same model"),
        ],
    )
    async def test_embeddings_of_another_model_fail_only_their_request(
        self,
        language_only: LLMEngine,
        encoder: LocalEncoder,
        expected: dict[str, list[int]],
        changes: dict[str, list[int]],
        reason: str,
    ) -> None:
        prompt = await prompt_of(encoder)
        updates = [update.model_copy(update={"embedded": None, **changes}) for update in prompt.updates]

        await check_refused(language_only, encoder, prompt.model_copy(update={"updates": updates}), reason)

        assert await generate(language_only, CONTENTS["one image"], "e", encoder) == expected["one image"]

    async def test_embeddings_of_another_version_are_refused(
        self, language_only: LLMEngine, encoder: LocalEncoder
    ) -> None:
        prompt = (await prompt_of(encoder)).model_copy(update={"vllm_version": "0.1.0"})

        await check_refused(language_only, encoder, prompt, "the encoder has vLLM 0.1.0, this executor has vLLM ")


async def prompt_of(encoder: LocalEncoder) -> PromptUpdates:
    tensor, _ = await encoder.encode(images_in(CONTENTS["one image"])[0])
    prompt = EncodedMedia.model_validate_json(tensor.metadata).prompt
    assert prompt is not None
    return prompt


async def check_refused(engine: LLMEngine, encoder: LocalEncoder, prompt: PromptUpdates, reason: str) -> None:
    content = CONTENTS["one image"]
    tensor, _ = await encoder.encode(images_in(content)[0], prompt=prompt)

    with pytest.raises(RuntimeError, match=rf"messages\[0\].content\[0\]: .*{reason}"):
        await engine.generate(chat(content, "e"), new_id(), embeddings=[tensor])
