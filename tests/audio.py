"""Audio for tests."""

from __future__ import annotations

import io
from hashlib import sha256
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import soundfile

from cornserve.task import Blob
from cornserve_tasklib.media import Audio

Samples: TypeAlias = npt.NDArray[np.float32]

FILE_OPTIONS = {
    "WAV": {"format": "WAV"},
    "WAVEX": {"format": "WAVEX"},
    "MP3": {"format": "MP3"},
    "FLAC": {"format": "FLAC"},
    "OGG": {"format": "OGG", "subtype": "OPUS"},
}
"""soundfile's options by format. A gateway calls WAVEX WAV, too."""


def sound(seed: int, seconds: float = 1, sample_rate: int = 16_000, channels: int = 1) -> Samples:
    """Returns random samples of the shape [samples, channels]."""
    random = np.random.default_rng(seed)
    samples: Samples = random.normal(0, 0.1, (round(seconds * sample_rate), channels)).astype(np.float32)
    return samples


def audio_file(samples: Samples, sample_rate: int = 16_000, format: str = "WAV", **options: str) -> bytes:
    """Returns the file that libsndfile writes."""
    with io.BytesIO() as file:
        soundfile.write(file, samples, sample_rate, **(FILE_OPTIONS[format] | options))
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
