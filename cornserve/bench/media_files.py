"""Media files with random contents, which no cache contains."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from base64 import b64encode
from random import Random

from cornserve.png import SIGNATURE

SAMPLE_RATE = 16_000
"""Samples per second of generated audio, as most audio encoders use."""


def image_url(width: int, height: int, random: Random) -> str:
    """Returns a `data:` URL of a PNG image whose rows have random colors."""
    rows = b"".join(b"\0" + random.randbytes(3) * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    png = SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return f"data:image/png;base64,{b64encode(png).decode()}"


def audio_url(seconds: float, random: Random) -> str:
    """Returns a `data:` URL of a WAV file of 16 bits per sample, in one channel, with random samples."""
    with io.BytesIO() as file:
        with wave.open(file, "wb") as audio:
            audio.setnchannels(1)
            audio.setsampwidth(2)
            audio.setframerate(SAMPLE_RATE)
            audio.writeframes(random.randbytes(2 * max(1, round(seconds * SAMPLE_RATE))))
        return f"data:audio/wav;base64,{b64encode(file.getvalue()).decode()}"
