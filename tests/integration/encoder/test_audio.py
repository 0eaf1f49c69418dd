"""Audio encoders: their inputs equal those of transformers, and their embeddings up to float32 rounding."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cornserve_executors.media.audio_decoding import DecodedAudio
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_tasklib.media import Audio
from tests.audio import as_audio, sound
from tests.images import as_image, noise
from tests.integration.encoder.engine import encode_rows, encoder_task, running_engine
from tests.integration.encoder.reference import TOLERANCE, load_transformers_model
from tests.integration.engine_pool import EnginePool
from tests.models.tiny_families import tiny_model

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine

SECONDS = [1.0, 0.1, 7.3, 1.2345, 29.99, 32.0]
AUDIOS = [as_audio(sound(seed, seconds), subtype="FLOAT") for seed, seconds in enumerate(SECONDS)]

HOP = 160
"""The samples between two feature frames."""


def transformers_rows(model: Path) -> list[Any]:
    """Returns the embeddings that transformers gives to the language model.

    Incomplete feature frames are completed with zeros, as by vLLM: for Qwen3-Omni, transformers drops them.
    """
    import torch
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(model)
    transformers_model = load_transformers_model(model)
    rows = []
    for seed, seconds in enumerate(SECONDS):
        samples = sound(seed, seconds)[:, 0]
        padded = np.pad(samples, (0, -len(samples) % HOP))
        inputs = processor(text=[processor.audio_token], audio=[padded], return_tensors="pt")
        with torch.no_grad():
            states = transformers_model(**inputs, output_hidden_states=True).hidden_states
        rows.append(states[0][0])
    return rows


@pytest.mark.parametrize(
    "name", ["qwen2audio", *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen25omni", "qwen3omni"))]
)
async def test_audio_is_encoded_as_by_transformers_alone_and_in_a_batch(name: str) -> None:
    import torch

    model = tiny_model(name)
    async with running_engine(encoder_task(model, modality="audio")) as engine:
        await engine.warm_up()
        alone = [await encode_rows(engine, audio) for audio in AUDIOS]
        together = await asyncio.gather(*(encode_rows(engine, audio) for audio in AUDIOS))

    expected = await asyncio.to_thread(transformers_rows, model)
    for rows in (alone, together):
        for actual, reference in zip(rows, expected, strict=True):
            torch.testing.assert_close(actual, reference, **TOLERANCE)


@pytest.mark.parametrize(
    "name", ["qwen3omni", *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen2audio", "qwen25omni"))]
)
async def test_the_metadata_of_short_audio_fit(name: str) -> None:
    async with running_engine(encoder_task(tiny_model(name), modality="audio", constant=True)) as engine:
        for seconds in (0.05, 0.1, 0.3, 0.32, 0.5):
            with await engine.prepare(as_audio(sound(0, seconds)), "request") as prepared:
                assert len(prepared.describe("key").model_dump_json()) < 1000


async def test_audio_is_decoded_in_the_threads_of_its_size(
    engines: EnginePool[EncoderEngine], tiny_qwen2audio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cornserve_executors.vllm import media_decoder

    threads = []

    def decode_audio(audio: Audio) -> DecodedAudio:
        threads.append(threading.current_thread().name)
        return DecodedAudio(sound(0, 1)[:, 0], 16_000)

    monkeypatch.setattr(media_decoder, "decode_audio", decode_audio)
    engine = await engines.engine(encoder_task(tiny_qwen2audio, modality="audio", constant=True))
    for seconds in (1, 250):
        (await engine.prepare(as_audio(sound(0, seconds)), "request")).release()

    assert [name.partition("-")[0] for name in threads] == ["small", "large"]


async def test_unusable_audio_is_named(engines: EnginePool[EncoderEngine], tiny_qwen2audio: Path) -> None:
    engine = await engines.engine(encoder_task(tiny_qwen2audio, modality="audio", constant=True))
    for media, reason in (
        (as_audio(sound(0, 0.01)), "the model does not accept the audio: .* too short"),
        (as_audio(sound(0, 1, 44_101), 44_101), "the sample rate 44101 cannot be converted to 16000"),
        (as_audio(sound(0)).model_copy(update={"format": "MP3"}), "not valid MP3 audio"),
        (as_image(noise(0, 20, 20)), "this encoder encodes audio, not image"),
    ):
        with pytest.raises(UnusableMediaError, match=rf"messages\[0\].content\[0\]: {reason}"):
            await engine.prepare(media, "request")
