"""A chat with audio is rendered to the prompt that vLLM renders from the same files. No engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_tasklib import Audio, EncoderTask
from tests.audio import as_audio, audio_file, audio_from_file, sound
from tests.images import noise
from tests.integration.multimodal.chats import chat
from tests.integration.multimodal.encoder import running_encoder
from tests.integration.multimodal.media_chats import AUDIO_CONTENTS, media_chat, media_in
from tests.integration.multimodal.test_prompt_renderer import make_renderer
from tests.integration.multimodal.vllm_reference import vllm_prompt

if TYPE_CHECKING:
    import torch

    from cornserve_executors.llm.prompt_renderer import PromptRenderer

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # raised by vLLM's own code
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning"),  # raised by vLLM's resampler
]


@pytest.fixture(scope="module")
def renderer(tiny_qwen2audio: Path) -> PromptRenderer:
    return make_renderer(tiny_qwen2audio)


def inputs(prompt: Any) -> list[dict[str, torch.Tensor]]:
    return [{name: field.data for name, field in item.items()} for item in prompt["mm_kwargs"]["audio"]]


@pytest.mark.parametrize("name", AUDIO_CONTENTS)
async def test_tokens_and_features_equal_those_of_vllm(renderer: PromptRenderer, name: str) -> None:
    content = AUDIO_CONTENTS[name]
    expected = await vllm_prompt(renderer, content)

    prompt = (await renderer.render(media_chat(content), stream=False)).prompt

    assert prompt["prompt_token_ids"] == expected["prompt_token_ids"]
    assert prompt["mm_placeholders"] == expected["mm_placeholders"]
    for found, wanted in zip(inputs(prompt), inputs(expected), strict=True):
        assert found.keys() == wanted.keys()
        assert all(found[field].equal(wanted[field]) for field in found)


@pytest.mark.parametrize("name", AUDIO_CONTENTS)
async def test_a_separate_encoder_has_the_same_tokens_and_features(
    renderer: PromptRenderer, tiny_qwen2audio: Path, tmp_path: Path, name: str
) -> None:
    import torch

    from cornserve_executors.encoder.families.audio_family import AudioEncoderFamily
    from cornserve_executors.encoder.loader import load_encoders
    from cornserve_executors.encoder.media_inputs import AudioInputs

    content = AUDIO_CONTENTS[name]
    expected = (await renderer.render(media_chat(content), stream=False)).prompt
    kind = "e" * len(media_in(content))
    language_only = make_renderer(tiny_qwen2audio, with_enc=False)
    async with running_encoder(tiny_qwen2audio, tmp_path, modality="audio") as encoder:
        embeddings = await encoder.encode_all(media_in(content), kind)
        prompt = (await language_only.render(media_chat(content, kind), embeddings, stream=False)).prompt
    family = load_encoders(EncoderTask(model_id=str(tiny_qwen2audio), modality="audio"), "cpu")["audio"].family
    assert isinstance(family, AudioEncoderFamily)
    encoder_inputs = AudioInputs(family)

    assert prompt["prompt_token_ids"] == expected["prompt_token_ids"]
    assert prompt["mm_placeholders"] == expected["mm_placeholders"]
    for audio, wanted in zip(media_in(content), inputs(expected), strict=True):
        assert isinstance(audio, Audio)
        prepared = encoder_inputs.prepare(audio, encoder_inputs.plan(audio))
        # vLLM disables oneDNN when it converts the sample rate, for the whole process.
        is_converted = audio.sample_rate != 16_000
        torch.testing.assert_close(
            prepared.features[0], wanted["input_features"], rtol=0, atol=1e-4 if is_converted else 0
        )


TRUNCATED = audio_file(sound(0), format="FLAC")[:-3000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([audio_from_file(b"RIFF" + bytes(60), "WAV", 16_000, 1, 1)], "the WAV audio cannot be decoded"),
        ([audio_from_file(audio_file(sound(0)), "MP3", 16_000, 1, 1)], "not valid MP3 audio"),
        ([audio_from_file(TRUNCATED, "FLAC", 16_000, 1, 1)], "truncated|cannot be decoded"),
        ([audio_from_file(audio_file(sound(0, 3)), "WAV", 16_000, 1, 1)], "more than the declared 1.0 s"),
        ([as_audio(sound(0, 1, 44_101), 44_101)], "the sample rate 44101 cannot be converted to 16000"),
        ([as_audio(sound(0, 0.01))], "the model's processor rejects it: .* too short"),
        ([as_audio(sound(0)).without_data], "the audio has no data"),
    ],
)
async def test_unusable_audio_is_named(renderer: PromptRenderer, content: Sequence[Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"messages\[0\].content\[0\]: .*({message})"):
        await renderer.render(media_chat(["?", *content][::-1]), stream=False)


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
