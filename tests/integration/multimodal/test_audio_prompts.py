"""A chat with audio is rendered to the prompt that vLLM renders from the same files. No engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_tasklib import Audio, EncoderTask
from tests.audio import as_audio, audio_file, audio_from_file, sound
from tests.images import noise
from tests.integration.multimodal.chats import chat
from tests.integration.multimodal.encoder import running_encoder
from tests.integration.multimodal.media_chats import AUDIO_CONTENTS, MediaContent, media_chat, media_in
from tests.integration.multimodal.test_prompt_renderer import make_renderer
from tests.integration.multimodal.vllm_reference import vllm_prompt
from tests.models.tiny_families import tiny_model

if TYPE_CHECKING:
    import torch

    from cornserve_executors.llm.prompt_renderer import PromptRenderer

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # raised by vLLM's own code
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning"),  # raised by vLLM's resampler
]


LONG: MediaContent = [as_audio(sound(9, 300.503, 8_000), 8_000), "?"]

OMNI_CONTENTS: dict[str, MediaContent] = {
    "one": AUDIO_CONTENTS["one"],
    "several formats": AUDIO_CONTENTS["several formats"],
    "longer than the padding": LONG,
}

contents = pytest.mark.parametrize(
    ("model", "content"),
    [
        *(pytest.param("qwen2audio", content, id=f"qwen2audio-{name}") for name, content in AUDIO_CONTENTS.items()),
        *(
            pytest.param(model, content, id=f"{model}-{name}", marks=[pytest.mark.slow] * (model == "qwen25omni"))
            for model in ("qwen25omni", "qwen3omni")
            for name, content in OMNI_CONTENTS.items()
        ),
    ],
)

FEATURES = {"input_features", "input_audio_features"}


@cache
def renderer_of(model: str, *, with_enc: bool = True) -> PromptRenderer:
    return make_renderer(tiny_model(model), with_enc=with_enc)


@pytest.fixture
def renderer() -> PromptRenderer:
    return renderer_of("qwen2audio")


def inputs(prompt: Any) -> list[dict[str, torch.Tensor]]:
    return [{name: field.data for name, field in item.items()} for item in prompt["mm_kwargs"]["audio"]]


def comparable_frames(model: str, content: MediaContent) -> slice:
    """Returns the frames that do not depend on the other audio in the request.

    The extractor of Qwen3-Omni mirrors the end of an audio, or appends zeros to it if another one is longer. The last
    frame, of 10 ms, differs.
    """
    depends_on_others = model == "qwen3omni" and len(media_in(content)) > 1
    return slice(-1 if depends_on_others else None)


@contents
async def test_tokens_and_features_equal_those_of_vllm(model: str, content: MediaContent) -> None:
    renderer, frames = renderer_of(model), comparable_frames(model, content)
    expected = await vllm_prompt(renderer, content)

    prompt = (await renderer.render(media_chat(content), stream=False)).prompt

    assert prompt["prompt_token_ids"] == expected["prompt_token_ids"]
    assert prompt["mm_placeholders"] == expected["mm_placeholders"]
    for found, wanted in zip(inputs(prompt), inputs(expected), strict=True):
        assert found.keys() == wanted.keys()
        for name in found.keys() & FEATURES:
            assert found[name][..., frames].equal(wanted[name][..., frames])
        assert all(found[name].equal(wanted[name]) for name in found.keys() - FEATURES)


@pytest.mark.slow
@contents
async def test_a_separate_encoder_has_the_same_tokens_and_features(
    model: str, content: MediaContent, tmp_path: Path
) -> None:
    import torch

    from cornserve_executors.encoder.vllm_tower import VllmTower

    expected = (await renderer_of(model).render(media_chat(content), stream=False)).prompt
    kind = "e" * len(media_in(content))
    language_only = renderer_of(model, with_enc=False)
    async with running_encoder(tiny_model(model), tmp_path, modality="audio") as encoder:
        embeddings = await encoder.encode_all(media_in(content), kind)
        prompt = (await language_only.render(media_chat(content, kind), embeddings, stream=False)).prompt
    tower = VllmTower.load(EncoderTask(model_id=str(tiny_model(model)), modality="audio", constant=True), "cpu")

    assert prompt["prompt_token_ids"] == expected["prompt_token_ids"]
    assert prompt["mm_placeholders"] == expected["mm_placeholders"]
    for audio, wanted in zip(media_in(content), inputs(expected), strict=True):
        assert isinstance(audio, Audio)
        item = tower.process(audio).item
        (name,) = wanted.keys() & FEATURES
        # vLLM disables oneDNN when it converts the sample rate, for the whole process.
        is_converted = audio.sample_rate != 16_000
        torch.testing.assert_close(
            item[name].data.reshape(wanted[name].shape), wanted[name], rtol=0, atol=1e-4 if is_converted else 0
        )


TRUNCATED = audio_file(sound(0), format="FLAC")[:-3000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([audio_from_file(b"RIFF" + bytes(60), "WAV", 16_000, 1, 1)], "the WAV audio cannot be decoded: it is damaged"),
        ([audio_from_file(audio_file(sound(0)), "MP3", 16_000, 1, 1)], "not valid MP3 audio"),
        ([audio_from_file(TRUNCATED, "FLAC", 16_000, 1, 1)], "the FLAC audio cannot be decoded: it is damaged"),
        ([audio_from_file(audio_file(sound(0, 3)), "WAV", 16_000, 1, 1)], "more than the declared 1.0 s"),
        ([as_audio(sound(0, 1, 44_101), 44_101)], "the sample rate 44101 cannot be converted to 16000"),
        ([as_audio(sound(0, 0.01))], "the model's processor rejects it: .* too short"),
        ([as_audio(sound(0)).without_data], "the audio has no data"),
    ],
)
async def test_unusable_audio_is_named(renderer: PromptRenderer, content: Sequence[Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"messages\[0\].content\[0\]: .*({message})"):
        await renderer.render(media_chat(["?", *content][::-1]), stream=False)


async def test_an_error_does_not_contain_the_samples() -> None:
    message = (
        r"the model's processor rejects it: The audio \(len=160\) is too short to be represented inside the model$"
    )
    with pytest.raises(InvalidRequestError, match=message):
        await renderer_of("qwen25omni").render(media_chat([as_audio(sound(0, 0.01)), "?"]), stream=False)


async def test_media_that_the_model_does_not_accept_are_named(
    renderer: PromptRenderer, tiny_qwen25vl: Path, tiny_llama: Path
) -> None:
    audio, image = media_chat([as_audio(sound(0))]), chat([noise(1, 20, 20)])
    for model, request, message in (
        (make_renderer(tiny_qwen25vl), audio, "does not accept audio"),
        (renderer, image, "does not accept images"),
        (make_renderer(tiny_llama), audio, "is a text model and does not accept audio"),
    ):
        with pytest.raises(InvalidRequestError, match=rf"messages\[0\].content\[0\]: .* {message}"):
            await model.render(request, stream=False)
