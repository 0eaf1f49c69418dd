"""A chat with videos is rendered to the prompt that vLLM renders from the same files. No engine runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_tasklib import Video
from tests.integration.encoder.engine import encode_rows, encoder_task, running_engine
from tests.integration.multimodal.media_chats import (
    OPTION_CONTENTS,
    SOUND_CONTENTS,
    VIDEO_CONTENTS,
    media_chat,
    with_options,
)
from tests.integration.multimodal.test_prompt_renderer import make_renderer
from tests.integration.multimodal.vllm_reference import vllm_prompt
from tests.models.tiny_families import tiny_model
from tests.video import as_video, video_file, video_from_file

if TYPE_CHECKING:
    from cornserve_executors.llm.prompt_renderer import PromptRenderer

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # raised by vLLM's own code
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning"),  # raised by vLLM's resampler
    pytest.mark.filterwarnings("ignore:Passing `min_pixels` and `max_pixels`:FutureWarning"),  # by vLLM's own code
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # by transformers
]


@pytest.fixture(
    scope="module",
    params=[
        "qwen3omni",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen25vl", "qwen3vl", "qwen25omni")),
    ],
)
def renderer(request: pytest.FixtureRequest) -> PromptRenderer:
    return make_renderer(tiny_model(request.param))


def with_broken_frames() -> Video:
    """Returns a video of nine JPEG images, of which the first three cannot be decoded."""
    data = video_file("MKV", "mjpeg", count=9, fps=3, pixel_format="yuvj420p")
    for _ in range(3):
        start = data.index(b"\xff\xd8")
        end = data.index(b"\xff\xd9", start)
        data = data[:start] + bytes(end - start) + data[end:]
    return video_from_file(data, "MKV", frames=9, seconds=3)


def embedded(range: Any) -> list[int]:
    """Returns the tokens that an embedding replaces."""
    positions: list[int] = range.is_embed.nonzero().flatten().tolist() if range.is_embed is not None else []
    return positions


async def check_equal(renderer: PromptRenderer, content: Any) -> None:
    import torch

    expected = await vllm_prompt(renderer, content)

    prompt = (await renderer.render(media_chat(content), stream=False)).prompt

    assert prompt["prompt_token_ids"] == expected["prompt_token_ids"]
    assert prompt["mm_placeholders"].keys() == expected["mm_placeholders"].keys()
    for modality, ranges in expected["mm_placeholders"].items():
        found_ranges = prompt["mm_placeholders"][modality]
        assert [range.get_num_embeds() for range in found_ranges] == [range.get_num_embeds() for range in ranges]
        if "audio" in expected["mm_placeholders"]:  # Positions of interleaved tokens count from here.
            assert [range.offset for range in found_ranges] == [range.offset for range in ranges]
            assert [embedded(range) for range in found_ranges] == [embedded(range) for range in ranges]
    for found, wanted in zip(prompt["mm_kwargs"]["video"], expected["mm_kwargs"]["video"], strict=True):
        assert found.keys() == wanted.keys()
        for field in found:
            torch.testing.assert_close(found[field].data, wanted[field].data, rtol=0, atol=0)


@pytest.mark.parametrize("name", VIDEO_CONTENTS)
async def test_tokens_and_pixels_equal_those_of_vllm(renderer: PromptRenderer, name: str) -> None:
    await check_equal(renderer, VIDEO_CONTENTS[name])


@pytest.mark.parametrize("name", OPTION_CONTENTS)
async def test_media_with_options_have_the_tokens_and_pixels_of_vllm(renderer: PromptRenderer, name: str) -> None:
    await check_equal(renderer, OPTION_CONTENTS[name])


@pytest.mark.parametrize("renderer", [pytest.param("qwen25omni", marks=pytest.mark.slow), "qwen3omni"], indirect=True)
@pytest.mark.parametrize("name", SOUND_CONTENTS)
async def test_sound_is_interleaved_as_by_vllm(renderer: PromptRenderer, name: str) -> None:
    await check_equal(renderer, SOUND_CONTENTS[name])


@pytest.mark.parametrize("renderer", ["qwen25vl"], indirect=True)
async def test_frames_that_cannot_be_decoded_are_omitted_as_by_vllm_and_by_an_encoder(
    renderer: PromptRenderer, tiny_qwen25vl: Path
) -> None:
    broken = with_broken_frames()

    await check_equal(renderer, [broken, "?"])
    prompt = (await renderer.render(media_chat([broken, "?"]), stream=False)).prompt
    ((video,),) = prompt["mm_placeholders"].values()
    async with running_engine(encoder_task(tiny_qwen25vl, modality="video")) as engine:
        assert len(await encode_rows(engine, broken)) == video.get_num_embeds()


async def test_models_without_videos_name_them() -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content\[0\]: .* does not accept videos"):
        await make_renderer(tiny_model("llava")).render(media_chat([as_video(4, 64, 64, fps=2)]), stream=False)


@pytest.mark.slow
async def test_limits_on_the_tiles_of_images_do_not_change_videos(tiny_internvl: Path) -> None:
    renderer = make_renderer(tiny_internvl)
    video = as_video(4, 64, 64, fps=2)

    plain = await renderer.render(media_chat(["See ", video]), stream=False)
    limited = await renderer.render(media_chat(with_options(["See ", video], max_patches=2)), stream=False)

    assert limited.prompt_tokens == plain.prompt_tokens
