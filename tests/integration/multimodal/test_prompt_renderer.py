"""A chat is rendered to the same prompt, with raw and encoded images. No engine runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve.task import Tensor
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.vllm import settings
from cornserve_tasklib import ChatMessage, ChatRequest, EngineOptions, LLMTask
from cornserve_tasklib.media import MediaPart
from cornserve_tasklib.tools import Tool
from tests.images import noise
from tests.integration.multimodal.chats import CONTENTS, Part, chat, combinations, images_in
from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.transformers_reference import TransformersReference

if TYPE_CHECKING:
    from cornserve_executors.llm.prompt_renderer import PromptRenderer, RenderedRequest

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # raised by vLLM's own code
]


@pytest.fixture(scope="module", params=["tiny_qwen25vl", pytest.param("tiny_internvl", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
async def encoder(model: Path, tmp_path: Path) -> AsyncIterator[LocalEncoder]:
    async with running_encoder(model, tmp_path) as encoder:
        yield encoder


def make_renderer(model: Path, *, with_enc: bool = True, tool_parser: str | None = None) -> PromptRenderer:
    settings.prepare_environment()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.renderers import renderer_from_config

    from cornserve_executors.llm.engine_args import engine_args
    from cornserve_executors.llm.prompt_renderer import PromptRenderer

    task = LLMTask(
        model_id=str(model), options=EngineOptions(max_model_len=8192), with_enc=with_enc, tool_parser=tool_parser
    )
    vllm_config = AsyncEngineArgs(**engine_args(task)).create_engine_config()
    return PromptRenderer(vllm_config.model_config, renderer_from_config(vllm_config), task)


@pytest.mark.parametrize("name", CONTENTS)
async def test_a_prompt_equals_that_of_transformers(model: Path, encoder: LocalEncoder, name: str) -> None:
    content = CONTENTS[name]
    expected = TransformersReference(model).prompt(content)

    for with_enc, kinds in ((True, "re"), (False, "e")):
        renderer = make_renderer(model, with_enc=with_enc)
        for kind in combinations(content, kinds):
            embeddings = await encoder.encode_all(images_in(content), kind)
            rendered = await renderer.render(chat(content, kind), embeddings, stream=False)
            assert rendered.prompt_tokens == expected, (with_enc, kind)


@pytest.mark.slow
async def test_the_prompt_of_several_large_images_equals_that_of_transformers(
    model: Path,
) -> None:
    content: list[Part] = ["Compare ", noise(1, 2100, 1000), " with ", noise(2, 1000, 2100), noise(3, 60, 90)]

    rendered = await make_renderer(model).render(chat(content), stream=False)

    assert rendered.prompt_tokens == TransformersReference(model).prompt(content)
    assert len(placeholder_ranges(rendered)) == 3


async def test_a_broken_image_among_several_large_ones_is_named(model: Path) -> None:
    request = chat([noise(1, 2100, 1000), noise(2, 1000, 2100)])
    (first, second) = request.media_parts
    broken = second.media.model_copy(update={"format": "JPEG", "where": "messages[0].content[1]"})
    message = ChatMessage(role="user", content=[first, MediaPart(type="media", media=broken)])

    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[1\]: not a valid JPEG image"):
        await make_renderer(model).render(ChatRequest(messages=[message]), stream=False)


async def test_image_tokens_in_a_text_are_rendered_as_with_raw_images(model: Path, encoder: LocalEncoder) -> None:
    content: list[Part] = [
        "Is <|image_pad|> or <IMG_CONTEXT> an image?",
        noise(1, 90, 60),
        "<|vision_start|><|image_pad|>",
    ]
    embeddings = await encoder.encode_all(images_in(content), "e")

    expected = await make_renderer(model).render(chat(content), stream=False)
    language_only = await make_renderer(model, with_enc=False).render(chat(content, "e"), embeddings, stream=False)

    assert expected.prompt_tokens == language_only.prompt_tokens
    assert placeholder_ranges(expected) == placeholder_ranges(language_only)


def placeholder_ranges(rendered: RenderedRequest) -> list[Any]:
    return [range.extract_embeds_range() for range in rendered.prompt["mm_placeholders"]["image"]]


async def test_any_message_may_contain_images(model: Path, encoder: LocalEncoder) -> None:
    first, second = chat([noise(1, 90, 60), "?"]).messages[0], chat(["And ", noise(2, 60, 90), "?"]).messages[0]
    messages = [
        ChatMessage(role="system", content="Look closely."),
        first,
        ChatMessage(role="assistant", content="Noise."),
        second,
    ]
    request = ChatRequest(messages=messages)
    expected = await make_renderer(model).render(request, stream=False)
    for tensors, kind in (([Tensor(), None], "er"), ([None, Tensor()], "re"), ([Tensor(), Tensor()], "ee")):
        embeddings = await encoder.encode_all([noise(1, 90, 60), noise(2, 60, 90)], kind)
        prompt = await make_renderer(model).render(request.with_embeddings(tensors), embeddings, stream=False)

        assert prompt.prompt_tokens == expected.prompt_tokens
        assert placeholder_ranges(prompt) == placeholder_ranges(expected)


@pytest.mark.parametrize("fields", [{"role": "system"}, {"role": "assistant"}, {"role": "tool", "tool_call_id": "a"}])
async def test_messages_of_all_roles_may_contain_images(tiny_qwen25vl: Path, fields: dict[str, str]) -> None:
    content = chat(["Look:", noise(1, 90, 60)]).messages[0].content
    messages = [ChatMessage.model_validate({**fields, "content": content}), ChatMessage(role="user", content="?")]

    rendered = await make_renderer(tiny_qwen25vl).render(ChatRequest(messages=messages), stream=False)

    assert len(placeholder_ranges(rendered)) == 1


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (3, 40)])
async def test_a_prompt_with_an_image_of_few_pixels_equals_that_of_transformers(
    model: Path, size: tuple[int, int]
) -> None:
    content: list[Part] = [noise(1, *size), "What is it?"]

    rendered = await make_renderer(model).render(chat(content), stream=False)

    assert rendered.prompt_tokens == TransformersReference(model).prompt(content)


async def test_a_chat_with_images_may_have_tools(model: Path, encoder: LocalEncoder) -> None:
    tools = [Tool.model_validate({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}})]
    content = CONTENTS["one image"]
    embeddings = await encoder.encode_all(images_in(content), "e")
    request = chat(content, "e", tools=tools, tool_choice="required")

    rendered = await make_renderer(model, tool_parser="hermes").render(request, embeddings, stream=False)

    assert rendered.new_parser is not None
    assert rendered.sampling.structured_outputs is not None
    assert len(placeholder_ranges(rendered)) == 1


async def test_an_image_that_the_processor_rejects_is_named(tiny_qwen25vl: Path) -> None:
    content = [noise(1, 90, 60), noise(2, 3000, 3)]
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: the model's processor .* ratio"):
        await make_renderer(tiny_qwen25vl).render(chat(content), stream=False)


async def test_a_text_model_rejects_images(tiny_llama: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: .* is a text model"):
        await make_renderer(tiny_llama).render(chat([noise(1, 20, 20)]), stream=False)
