"""Audio for tests."""

from __future__ import annotations

import io
from hashlib import sha256
from typing import TypeAlias

import av
import numpy as np
import numpy.typing as npt
import soundfile

from cornserve.task import Blob
from cornserve_tasklib.media import Audio

Samples: TypeAlias = npt.NDArray[np.float32]

FILE_OPTIONS = {
    "WAV": {"format": "WAV"},
    "WAVEX": {"format": "WAVEX"},
    "RF64": {"format": "RF64", "subtype": "PCM_16"},
    "W64": {"format": "W64", "subtype": "PCM_16"},
    "AIFF": {"format": "AIFF"},
    "MP3": {"format": "MP3"},
    "FLAC": {"format": "FLAC"},
    "OGG": {"format": "OGG", "subtype": "OPUS"},
}
"""soundfile's options by format. A gateway calls WAVEX, RF64 and W64 WAV, too."""

CONTAINERS = {
    "AAC": ("adts", "aac"),
    "M4A": ("ipod", "aac"),
    "WEBM": ("webm", "libopus"),
    "WAV-MP3": ("wav", "libmp3lame"),
}
"""FFmpeg's container and encoder of the formats that libsndfile does not write."""


def sound(seed: int, seconds: float = 1, sample_rate: int = 16_000, channels: int = 1) -> Samples:
    """Returns random samples of the shape [samples, channels]."""
    random = np.random.default_rng(seed)
    samples: Samples = random.normal(0, 0.1, (round(seconds * sample_rate), channels)).astype(np.float32)
    return samples


def audio_file(samples: Samples, sample_rate: int = 16_000, format: str = "WAV", **options: str) -> bytes:
    """Returns the file that libsndfile writes, or FFmpeg with `options` of the container."""
    if format in CONTAINERS:
        return _container_file(samples, sample_rate, *CONTAINERS[format], options)
    with io.BytesIO() as file:
        soundfile.write(file, samples, sample_rate, **(FILE_OPTIONS[format] | options))
        return file.getvalue()


def id3_tag(nbytes: int, *, footer: bool = False) -> bytes:
    """Returns an ID3v2.4 tag with `nbytes` of padding."""
    header = bytes([4, 0, footer << 4, 0, 0, nbytes >> 7, nbytes & 0x7F])
    return b"ID3" + header + bytes(nbytes) + (b"3DI" + header if footer else b"")


def _container_file(samples: Samples, sample_rate: int, container: str, codec: str, options: dict[str, str]) -> bytes:
    layout = {1: "mono", 2: "stereo"}[samples.shape[1]]
    with io.BytesIO() as file:
        with av.open(file, "w", container, options=options) as output:
            stream = output.add_stream(codec, sample_rate, layout=layout)
            assert isinstance(stream, av.AudioStream)
            resampler = av.AudioResampler(stream.format, layout, sample_rate)
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples.T), "fltp", layout)
            frame.sample_rate = sample_rate
            for converted in resampler.resample(frame):
                output.mux(stream.encode(converted))
            output.mux(stream.encode(None))
        return file.getvalue()


def audio_from_file(
    data: bytes, format: str, sample_rate: int, channels: int, seconds: float, where: str = "messages[0].content[0]"
) -> Audio:
    """Returns the `Audio` that a gateway makes of a file."""
    return Audio(
        data=Blob(data),
        format=format,
        sample_rate=sample_rate,
        channels=channels,
        seconds=seconds,
        digest=sha256(data).hexdigest(),
        where=where,
    )


def as_audio(samples: Samples, sample_rate: int = 16_000, format: str = "WAV", **options: str) -> Audio:
    """Returns the `Audio` that a gateway makes of samples."""
    data = audio_file(samples, sample_rate, format, **options)
    return audio_from_file(data, format, sample_rate, samples.shape[1], len(samples) / sample_rate + 0.1)


def spoiled_audio(number: int) -> Audio:
    """Returns audio with a sample that is not a usable number: NaN, an infinity or 1e38."""
    samples = sound(number)
    samples[number % len(samples)] = (np.nan, np.inf, -np.inf, 1e38)[number % 4]
    return as_audio(samples, subtype="FLOAT")
