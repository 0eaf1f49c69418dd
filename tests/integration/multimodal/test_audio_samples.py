"""The samples of audio are those of vLLM's loader."""

from __future__ import annotations

import io

import numpy as np
import pytest

from cornserve.gateway.media.audio_header import read_audio_header
from cornserve.gateway.media.video_header import read_sound_header
from cornserve.task import Blob
from cornserve_executors.media.audio_decoding import decode_audio
from tests.audio import audio_file, id3_tag, sound
from tests.video import video_file

UNCOMPRESSED = (
    "WAV",
    "RF64",
    "WAV MS_ADPCM",
    "WAV IMA_ADPCM",
    "AIFF",
    "AIFF FLOAT",
    "AIFF IMA_ADPCM",
    "W64",
    "W64 IMA_ADPCM",
)
COMPRESSED = ("MP3", "WAV-MP3", "AAC", "FLAC", "OGG", "M4A", "WEBM")


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    ("format", "cut"),
    [
        *((format, 0) for format in (*UNCOMPRESSED, *COMPRESSED)),
        *((format, 1001) for format in UNCOMPRESSED),  # A recording that was interrupted.
    ],
)
def test_samples_are_those_of_vllm(format: str, channels: int, cut: int) -> None:
    from vllm.multimodal.media.audio import load_audio

    name, *subtype = format.split()
    options = {"subtype": subtype[0]} if subtype else {}
    data = audio_file(sound(0, 1, 48_000, channels), 48_000, name, **options)
    data = data[: len(data) - cut]
    audio = read_audio_header(data, 600).to_media(Blob(data), "digest", "messages[0].content[0]")
    expected, sample_rate = load_audio(io.BytesIO(data), sr=None)

    decoded = decode_audio(audio)

    assert decoded.sample_rate == sample_rate
    np.testing.assert_array_equal(decoded.samples, expected)


@pytest.mark.parametrize("format", ["MP3", "AAC", "FLAC"])
def test_tags_do_not_change_the_samples(format: str) -> None:
    data = audio_file(sound(0, 1), format=format)
    tagged = id3_tag(30) + id3_tag(200, footer=True) + data + b"TAG".ljust(128, b"\0")

    plain, decoded = (
        decode_audio(read_audio_header(file, 600).to_media(Blob(file), "digest", "messages[0].content[0]"))
        for file in (data, tagged)
    )

    np.testing.assert_array_equal(decoded.samples, plain.samples)


@pytest.mark.parametrize(
    ("format", "codec"), [("AVI", "mp3"), ("AVI", "aac"), ("MP4", "aac"), ("MKV", "aac"), ("WEBM", "libopus")]
)
def test_the_sound_of_a_video_has_the_samples_of_vllm(format: str, codec: str) -> None:
    from vllm.multimodal.media.audio import load_audio

    picture = "libvpx" if format == "WEBM" else "mpeg4"
    data = video_file(format, picture, sound=codec, samples=sound(0, 1, 48_000).T)
    header = read_sound_header(data, 100_000)
    assert format == "MKV" or read_audio_header(data, 100_000) == header
    audio = header.to_media(Blob(data), "digest", "messages[0].content[0]")
    expected, sample_rate = load_audio(io.BytesIO(data), sr=None)

    decoded = decode_audio(audio)

    assert decoded.sample_rate == sample_rate
    np.testing.assert_array_equal(decoded.samples, expected)
