"""Converts samples of speech to audio."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import torch

from cornserve_executors.media.audio_encoding import encode_file
from cornserve_tasklib.audio_format import AudioFormat
from cornserve_tasklib.talker import SAMPLE_RATE, SpokenChunk


class SpeechAudio:
    """The samples of one speech so far."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    @property
    def seconds(self) -> float:
        return sum(map(len, self._parts)) / 2 / SAMPLE_RATE

    def add(self, samples: torch.Tensor) -> SpokenChunk:
        """Adds samples from -1 to 1, of the shape [samples], and returns them as a chunk of the stream."""
        pcm: bytes = (samples * 32767).round().to(torch.int16).numpy().astype("<i2").tobytes()
        self._parts.append(pcm)
        return SpokenChunk(pcm=b64encode(pcm).decode())

    async def encode(self, format: AudioFormat) -> str:
        """Returns the whole speech in a format, in base64."""
        file = await asyncio.to_thread(encode_file, b"".join(self._parts), format, SAMPLE_RATE)
        return b64encode(file).decode()
