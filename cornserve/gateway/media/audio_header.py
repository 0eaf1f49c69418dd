"""Reads the format and the duration of audio from the headers in its file, without decoding it.

The sender controls the number of a file's parts, so all loops over parts are bounded.
"""

from __future__ import annotations

import struct

from cornserve import id3_tags
from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats import aac, aiff, avi, flac, isobmff, matroska, mp3, ogg, wav
from cornserve.gateway.media.formats.base import AudioHeader, truncated_header

SUPPORTED_AUDIO = "WAV, AIFF, MP3, AAC, FLAC, Ogg (Opus or Vorbis), M4A or WebM"

MAX_PACKETS_PER_SECOND = 400
"""Opus has the shortest packets, of 2.5 milliseconds."""


def read_audio_header(data: bytes, max_seconds: int) -> AudioHeader:
    """Raises a `MediaError`. Stops at `max_seconds` in files that have one header for each fraction of a second."""
    try:
        if avi.is_avi(data):
            return avi.read_audio_header(data)
        if data.startswith((*wav.MAGIC, wav.W64_MAGIC)):
            return wav.read_header(data, max_seconds)
        if data.startswith(aiff.MAGIC):
            return aiff.read_header(data)
        if data.startswith(ogg.MAGIC):
            return ogg.read_header(data)
        if isobmff.is_isobmff(data):
            return isobmff.read_audio_header(data, max_seconds * MAX_PACKETS_PER_SECOND)
        if data.startswith(matroska.MAGIC):
            return matroska.read_audio_header(data, max_seconds * MAX_PACKETS_PER_SECOND)
        frames = data[id3_tags.leading_tag_bytes(data) :]
        if data and not frames:
            raise truncated_header()
        if frames.startswith(flac.MAGIC):
            return flac.read_header(frames, max_seconds, max_seconds * MAX_PACKETS_PER_SECOND)
        if aac.is_aac(frames):
            return aac.read_header(frames, max_seconds)
        if mp3.is_mp3(frames):
            return mp3.read_header(frames, max_seconds)
    except (struct.error, IndexError, OverflowError):
        raise truncated_header() from None
    if not data:
        raise MediaError("invalid", f"the file is empty: send {SUPPORTED_AUDIO}")
    place = " after the ID3 tag" if data.startswith(id3_tags.MAGIC) else ""
    raise MediaError("unsupported", f"unsupported audio format{place}: send {SUPPORTED_AUDIO}")
