"""The formats of audio files and streams that models generate."""

from __future__ import annotations

from typing import Literal

AudioFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
"""OpenAI's names: MP3, Opus in Ogg, AAC in ADTS frames, FLAC, WAV, and signed 16-bit little-endian samples without a
header."""

MIME_TYPES: dict[AudioFormat, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
