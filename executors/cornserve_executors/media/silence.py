"""Silent audio, with which executors warm up."""

from __future__ import annotations

import struct
from typing import Final

from cornserve.task import Blob
from cornserve_tasklib.media import Audio

_WAV_HEADER = struct.pack(
    "<4sI8sIHHIIHH4sI", b"RIFF", 32_036, b"WAVEfmt ", 16, 1, 1, 16_000, 32_000, 2, 16, b"data", 32_000
)

SILENCE: Final = Audio(
    data=Blob(_WAV_HEADER + bytes(32_000)),
    format="WAV",
    sample_rate=16_000,
    channels=1,
    seconds=1,
    digest="silence",
    where="warm-up",
)
