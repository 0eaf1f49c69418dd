"""Encoding of generated audio, in parts."""

from __future__ import annotations

import io
import wave
import weakref
from itertools import pairwise
from typing import get_args

import av
import numpy as np
import numpy.typing as npt
import pytest

from cornserve.gateway.media.audio_header import read_audio_header
from cornserve.task import Blob
from cornserve_executors.media.audio_decoding import decode_audio
from cornserve_executors.media.audio_encoding import AudioEncoder, encode_file, to_int16
from cornserve_tasklib.audio_format import MIME_TYPES, AudioFormat

PITCH = 440
SECONDS = 3
FORMATS: tuple[AudioFormat, ...] = get_args(AudioFormat)


def tone(sample_rate: int) -> npt.NDArray[np.float32]:
    times = np.arange(SECONDS * sample_rate, dtype=np.float32) / sample_rate
    return 0.5 * np.sin(2 * np.pi * PITCH * times, dtype=np.float32)


def encode(format: AudioFormat, samples: npt.NDArray[np.float32], sample_rate: int, parts: int) -> list[bytes]:
    encoder = AudioEncoder(format, sample_rate)
    ends = np.linspace(0, samples.size, parts + 1).astype(int)
    return [*(encoder.encode(samples[start:end]) for start, end in pairwise(ends)), encoder.finish()]


def decode(file: bytes) -> tuple[npt.NDArray[np.float32], int]:
    with av.open(io.BytesIO(file), "r") as container:
        resampler = av.AudioResampler(format="flt", layout="mono")
        frames = [part for frame in container.decode(audio=0) for part in resampler.resample(frame)]
        return np.concatenate([frame.to_ndarray()[0] for frame in frames]), frames[0].sample_rate


@pytest.mark.parametrize("sample_rate", [16_000, 22_050, 24_000])
@pytest.mark.parametrize("format", [format for format in FORMATS if format != "pcm"])
def test_the_parts_of_a_file_are_the_given_audio(format: AudioFormat, sample_rate: int) -> None:
    file = b"".join(encode(format, tone(sample_rate), sample_rate, parts=7))

    samples, rate = decode(file)

    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    assert np.argmax(spectrum) * rate / samples.size == pytest.approx(PITCH, abs=1)
    assert samples.size / rate == pytest.approx(SECONDS, abs=0.15)
    middle = samples[rate : 2 * rate]  # without the padding of the codec
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.06)  # LAME scales by 0.95


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "pcm"])
def test_generated_audio_is_accepted_as_audio_of_a_request(format: AudioFormat) -> None:
    """A client can transcribe the speech that it has streamed."""
    file = b"".join(encode(format, tone(24_000), 24_000, parts=7))

    audio = read_audio_header(file, 600).to_media(Blob(file), "digest", "file")

    assert audio.seconds == pytest.approx(SECONDS, abs=0.15)
    decoded = decode_audio(audio)
    assert len(decoded.samples) / decoded.sample_rate == pytest.approx(SECONDS, abs=0.15)


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "pcm"])
def test_a_complete_file_is_the_given_audio(format: AudioFormat) -> None:
    pcm = to_int16(tone(24_000)).astype("<i2").tobytes()

    samples, rate = decode(encode_file(pcm, format, 24_000))

    assert samples.size / rate == pytest.approx(SECONDS, abs=0.15)
    assert np.sqrt(np.mean(samples[rate : 2 * rate] ** 2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.06)
    assert isinstance(encode_file(b"", format, 24_000), bytes)


def test_a_complete_wav_file_has_its_length_and_pcm_no_header() -> None:
    pcm = bytes(range(100))

    with wave.open(io.BytesIO(encode_file(pcm, "wav", 24_000))) as file:
        assert (file.getframerate(), file.getnframes(), file.readframes(50)) == (24_000, 50, pcm)
    assert encode_file(pcm, "pcm", 24_000) == pcm


@pytest.mark.parametrize(("format", "header"), [("wav", b"RIFF"), ("flac", b"fLaC"), ("opus", b"OggS"), ("pcm", b"")])
def test_a_file_without_audio_has_a_header(format: AudioFormat, header: bytes) -> None:
    file = encode_file(b"", format, 24_000)

    assert file[:4] == header


def test_a_complete_flac_file_has_its_length() -> None:
    file = encode_file(to_int16(tone(24_000)).tobytes(), "flac", 24_000)

    with av.open(io.BytesIO(file), "r") as container:
        assert container.duration == SECONDS * av.time_base


@pytest.mark.parametrize("format", FORMATS)
def test_each_second_of_audio_is_written_before_the_end(format: AudioFormat) -> None:
    *parts, _ = encode(format, tone(24_000), 24_000, parts=SECONDS)

    assert all(parts)


@pytest.mark.parametrize(("format", "header"), [("wav", 44), ("pcm", 0)])
def test_uncompressed_parts_contain_all_samples(format: AudioFormat, header: int) -> None:
    samples = tone(16_000)

    file = b"".join(encode(format, samples, 16_000, parts=11))

    assert file[header:] == to_int16(samples).tobytes()


def test_loud_samples_are_clipped() -> None:
    assert to_int16(np.array([-2, -1, 0, 0.5, 1, 9], np.float32)).tolist() == [-32767, -32767, 0, 16384, 32767, 32767]


@pytest.mark.parametrize("format", FORMATS)
def test_an_encoder_can_be_dropped_at_any_time(format: AudioFormat) -> None:
    started = AudioEncoder(format, 16_000)
    started.encode(tone(16_000)[:100])
    dropped = [weakref.ref(started), weakref.ref(AudioEncoder(format, 16_000))]

    del started

    assert [reference() for reference in dropped] == [None, None]


def test_every_format_has_a_media_type() -> None:
    assert set(MIME_TYPES) == set(FORMATS)
