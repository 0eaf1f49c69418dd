"""Audio is decoded in bounded memory and time, and invalid files are rejected with their position and reason."""

from __future__ import annotations

import threading
import time
import tracemalloc
from concurrent.futures import CancelledError

import numpy as np
import pytest

from cornserve_executors.media.audio_decoding import BLOCK_SAMPLES, check_conversion, decode_audio
from cornserve_executors.media.cancellation import run_cancellable
from cornserve_executors.media.errors import UnusableMediaError
from tests.audio import Samples, as_audio, audio_file, audio_from_file, sound

FORMATS = ["WAV", "AIFF", "MP3", "AAC", "FLAC", "OGG", "M4A", "WEBM"]
MIB = 1 << 20


@pytest.mark.parametrize("format", FORMATS)
def test_the_channels_are_averaged(format: str) -> None:
    samples = sound(0, 1, 48_000, 2)

    decoded = decode_audio(as_audio(samples, 48_000, format))

    assert decoded.sample_rate == 48_000
    assert decoded.samples.dtype == np.float32
    if format in ("WAV", "AIFF", "FLAC"):
        np.testing.assert_allclose(decoded.samples, samples.mean(axis=1), atol=1e-4)


def test_many_channels_take_the_memory_of_one() -> None:
    audio = as_audio(np.zeros((2 * MIB, 8), np.float32), 192_000, "FLAC")
    tracemalloc.start()

    decode_audio(audio)
    _, decoding = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert decoding < 2 * 2 * 4 * MIB + 8 * MIB


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38, -1e38, 65_537])
@pytest.mark.parametrize("position", [0, 1.5 * BLOCK_SAMPLES, -1], ids=["first", "second block", "last"])
def test_a_sample_that_is_not_a_usable_number_is_rejected(value: float, position: float) -> None:
    samples = sound(0, 10, channels=2)
    samples[int(position), 1] = value

    with pytest.raises(
        UnusableMediaError, match=r"messages\[0\].content\[0\]: the audio has a sample that is not within"
    ):
        decode_audio(as_audio(samples, subtype="FLOAT"))


def test_integers_as_floats_are_accepted() -> None:
    samples: Samples = np.full((16_000, 1), -32_768, np.float32)

    assert decode_audio(as_audio(samples, subtype="FLOAT")).samples.min() == -32_768


def test_decoding_ends_when_its_caller_is_cancelled() -> None:
    cancelled = threading.Event()
    cancelled.set()

    with pytest.raises(CancelledError):
        run_cancellable(lambda: decode_audio(as_audio(sound(0))), cancelled)
    assert len(decode_audio(as_audio(sound(0))).samples) == 16_000


def test_an_error_does_not_quote_the_decoder() -> None:
    data = audio_file(sound(0, 3), format="FLAC")
    damaged = audio_from_file(data[: len(data) // 2] + bytes(3000), "FLAC", 16_000, 1, 3)

    with pytest.raises(
        UnusableMediaError, match=r"cannot be decoded: it is damaged, or in a rare encoding: save it as"
    ):
        decode_audio(damaged)


def test_a_bomb_is_rejected_at_its_declared_duration() -> None:
    """The file contains ten minutes, but its declared duration is a second."""
    bomb = audio_from_file(audio_file(np.zeros((600 * 16_000, 1), np.float32), format="FLAC"), "FLAC", 16_000, 1, 1)
    before = time.thread_time()

    with pytest.raises(UnusableMediaError, match=r"messages\[0\].content\[0\]: the audio takes more than the declared"):
        decode_audio(bomb)

    assert time.thread_time() - before < 0.2


@pytest.mark.parametrize(
    "sample_rate", [8_000, 11_025, 22_050, 24_000, 32_000, 44_100, 48_000, 88_200, 96_000, 192_000]
)
@pytest.mark.parametrize("target", [16_000, 24_000])
def test_common_sample_rates_can_be_converted(sample_rate: int, target: int) -> None:
    check_conversion(as_audio(sound(0, 0.1)), sample_rate, target)


@pytest.mark.parametrize("sample_rate", [44_101, 15_999, 191_999])
def test_sample_rates_whose_conversion_needs_much_memory_are_rejected(sample_rate: int) -> None:
    with pytest.raises(UnusableMediaError, match=f"the sample rate {sample_rate} cannot be converted to 16000"):
        check_conversion(as_audio(sound(0, 0.1)), sample_rate, 16_000)
