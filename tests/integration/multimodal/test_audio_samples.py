"""The samples of audio are those of vLLM's loader."""

from __future__ import annotations

import io

import numpy as np
import pytest

from cornserve_executors.media.audio_decoding import decode_audio
from tests.audio import as_audio, sound


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("format", ["WAV", "MP3", "FLAC", "OGG", "M4A", "WEBM"])
def test_samples_are_those_of_vllm(format: str, channels: int) -> None:
    from vllm.multimodal.media.audio import load_audio

    audio = as_audio(sound(0, 1, 48_000, channels), 48_000, format)
    assert audio.data is not None
    expected, sample_rate = load_audio(io.BytesIO(audio.data.data), sr=None)

    decoded = decode_audio(audio)

    assert decoded.sample_rate == sample_rate
    np.testing.assert_array_equal(decoded.samples, expected)
