"""A chat becomes the same prompt in every role. No engine runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.renderers import renderer_from_config

from cornserve.task import Tensor
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.llm.engine import engine_args
from cornserve_executors.llm.prompt_renderer import PromptRenderer, RenderedRequest
from cornserve_executors.vllm import settings
from cornserve_tasklib import ChatMessage, ChatRequest, LLMTask
from cornserve_tasklib.image import ImagePart
from cornserve_tasklib.tools import Tool
from tests.images import noise
from tests.integration.multimodal.chats import CONTENTS, Part, chat, images_in, kinds
from tests.integration.multimodal.encoder import Encoder, running_encoder
from tests.integration.multimodal.transformers_reference import TransformersReference

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # vLLM uses its own field.
]


@pytest.fixture(scope="module", params=["tiny_qwen25vl", "tiny_internvl"])
def model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
async def encoder(model: Path, tmp_path: Path) -> AsyncIterator[Encoder]:
    async with running_encoder(model, tmp_path) as encoder:
        yield encoder


def generations(model: Path, *, with_enc: bool = True, tool_parser: str | None = None) -> PromptRenderer:
    settings.prepare_environment()
    task = LLMTask(model_id=str(model), max_model_len=4096, with_enc=with_enc, tool_parser=tool_parser)
    vllm_config = AsyncEngineArgs(**engine_args(task)).create_engine_config()
    return PromptRenderer(vllm_config.model_config, renderer_from_config(vllm_config), task)


@pytest.mark.parametrize("name", CONTENTS)
async def test_a_prompt_is_that_of_transformers(model: Path, encoder: Encoder, name: str) -> None:
    content = CONTENTS[name]
    expected = TransformersReference(model).prompt(content)

    for with_enc, choice in ((True, "re"), (False, "e")):
        role = generations(model, with_enc=with_enc)
        for kind in kinds(content, choice):
            received = await encoder.all(images_in(content), kind)
            generation = await role.of(chat(content, kind), received, stream=False)
            assert generation.prompt_tokens == expected, (with_enc, kind)


async def test_several_large_images_are_seen_one_after_the_other_as_transformers_sees_them_together(
    model: Path,
) -> None:
    content: list[Part] = ["Compare ", noise(1, 2100, 1000), " with ", noise(2, 1000, 2100), noise(3, 60, 90)]

    generation = await generations(model).of(chat(content), stream=False)

    assert generation.prompt_tokens == TransformersReference(model).prompt(content)
    assert len(places(generation)) == 3


async def test_of_several_large_images_the_one_that_is_broken_is_named(model: Path) -> None:
    request = chat([noise(1, 2100, 1000), noise(2, 1000, 2100)])
    (first, second) = request.image_parts
    broken = second.image.model_copy(update={"format": "JPEG", "where": "messages[0].content[1]"})
    message = ChatMessage(role="user", content=[first, ImagePart(type="image", image=broken)])

    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[1\]: not a valid JPEG image"):
        await generations(model).of(ChatRequest(messages=[message]), stream=False)


async def test_what_only_looks_like_an_image_is_taken_as_the_monolith_takes_it(model: Path, encoder: Encoder) -> None:
    content: list[Part] = [
        "Is <|image_pad|> or <IMG_CONTEXT> an image?",
        noise(1, 90, 60),
        "<|vision_start|><|image_pad|>",
    ]
    received = await encoder.all(images_in(content), "e")

    whole = await generations(model).of(chat(content), stream=False)
    language_only = await generations(model, with_enc=False).of(chat(content, "e"), received, stream=False)

    assert whole.prompt_tokens == language_only.prompt_tokens
    assert places(whole) == places(language_only)


def places(generation: RenderedRequest) -> list[Any]:
    return [(place.offset, place.length) for place in generation.prompt["mm_placeholders"]["image"]]


async def test_images_may_be_in_any_message(model: Path, encoder: Encoder) -> None:
    first, second = chat([noise(1, 90, 60), "?"]).messages[0], chat(["And ", noise(2, 60, 90), "?"]).messages[0]
    turns = [
        ChatMessage(role="system", content="Look closely."),
        first,
        ChatMessage(role="assistant", content="Noise."),
        second,
    ]
    request = ChatRequest(messages=turns)
    whole = await generations(model).of(request, stream=False)
    for embeddings, kind in (([Tensor(), None], "er"), ([None, Tensor()], "re"), ([Tensor(), Tensor()], "ee")):
        received = await encoder.all([noise(1, 90, 60), noise(2, 60, 90)], kind)
        some = await generations(model).of(request.with_embeddings(embeddings), received, stream=False)

        assert some.prompt_tokens == whole.prompt_tokens
        assert places(some) == places(whole)


async def test_a_model_may_call_functions_whatever_it_sees(model: Path, encoder: Encoder) -> None:
    tools = [Tool.model_validate({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}})]
    content = CONTENTS["one image"]
    received = await encoder.all(images_in(content), "e")
    request = chat(content, "e", tools=tools, tool_choice="required")

    generation = await generations(model, tool_parser="hermes").of(request, received, stream=False)

    assert generation.new_parsing is not None
    assert generation.sampling.structured_outputs is not None
    assert len(places(generation)) == 1


async def test_an_image_that_the_processor_refuses_is_named(tiny_qwen25vl: Path) -> None:
    content = [noise(1, 90, 60), noise(2, 3000, 3)]
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: the model's processor .* ratio"):
        await generations(tiny_qwen25vl).of(chat(content), stream=False)


async def test_a_model_of_text_takes_no_images(tiny_llama: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: .* is a model of text"):
        await generations(tiny_llama).of(chat([noise(1, 20, 20)]), stream=False)
