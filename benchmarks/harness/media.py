"""Media with random contents."""

from __future__ import annotations

import io
import wave
from hashlib import sha256
from typing import Any

import numpy as np
import PIL.Image

from cornserve.task import Blob
from cornserve_tasklib.media import Audio, Image

SAMPLE_RATE = 16_000


def random_image(seed: int, side: int) -> Image:
    """Returns a square image. `side` is in pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG")
    return Image(width=side, height=side, format="JPEG", **_file_fields(file))


def random_audio(seed: int, seconds: float) -> Audio:
    """Returns audio of one channel."""
    samples = np.random.default_rng(seed).integers(-3000, 3000, round(seconds * SAMPLE_RATE)).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        writer.writeframes(samples.tobytes())
    return Audio(sample_rate=SAMPLE_RATE, channels=1, seconds=seconds, format="WAV", **_file_fields(file))


def _file_fields(file: io.BytesIO) -> dict[str, Any]:
    data = file.getvalue()
    return {"data": Blob(data), "digest": sha256(data).hexdigest(), "where": "media"}
