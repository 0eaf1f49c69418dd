from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from struct import unpack_from
from typing import NamedTuple

from cornserve.gateway.media.formats.base import (
    AudioHeader,
    VideoHeader,
    broken,
    no_sound,
    too_many_frames,
    truncated,
    unsupported_audio_codec,
    unsupported_codec,
)

MAGIC = b"RIFF"

MAX_CHUNKS = 10_000

_RGB = bytes(4)
_CODECS = frozenset(
    (
        *(b"H264", b"X264", b"AVC1", b"HEVC", b"HVC1", b"VP80", b"VP90", b"AV01", b"MJPG"),
        *(b"MP4V", b"FMP4", b"XVID", b"DIVX", b"DX50", b"MP42", b"MP43", b"WMV2", b"H263", b"FLV1", b"MPG2"),
        *(b"CVID", b"MPNG", b"FFV1", b"HFYU", b"ULY0", b"I420", _RGB),
    )
)
_VIDEO, _AUDIO = b"vids", b"auds"

_MP3, _AAC = 0x55, 0xFF
"""The codecs of sound. vLLM returns samples of PCM and ADPCM in AVI files without scaling them to ±1."""


class _AviChunk(NamedTuple):
    kind: bytes
    start: int
    """The position of the content."""


def is_avi(data: bytes) -> bool:
    return data.startswith(MAGIC) and data[8:12] == b"AVI "


def read_header(data: bytes, max_frames: int) -> VideoHeader:
    """Reads the first video track. Raises a `MediaError` if it has more than `max_frames` frames."""
    track = _first_track(data, _VIDEO)
    if track is None:
        raise broken("AVI", "has no video")
    scale, rate, frames, layout = track
    width, height, codec = unpack_from("<ii4x4s", data, layout + 4)
    if codec.upper() not in _CODECS:
        name = codec.decode("latin-1")
        raise unsupported_codec(name if name.isprintable() else f"{int.from_bytes(codec, 'little'):#x}")
    if frames > max_frames:
        raise too_many_frames(max_frames)
    return VideoHeader("AVI", abs(width), abs(height), frames, frames * scale / rate if rate else 0)


def read_audio_header(data: bytes) -> AudioHeader:
    """Reads the first sound track. Raises a `MediaError`."""
    track = _first_track(data, _AUDIO)
    if track is None:
        raise no_sound("AVI")
    scale, rate, parts, layout = track
    codec, channels, sample_rate = unpack_from("<HHI", data, layout)
    if codec not in (_MP3, _AAC):
        raise unsupported_audio_codec(f"{codec:#x}")
    if rate == 0:
        raise broken("AVI", "has sound without a rate")
    return AudioHeader("AVI", sample_rate, channels, ceil(parts * scale * sample_rate / rate))


class _AviTrack(NamedTuple):
    scale: int
    rate: int
    """`rate / scale` is the number of parts per second."""
    parts: int
    """Frames of a video, or parts of sound."""
    layout: int
    """The position of the format of the parts."""


def _first_track(data: bytes, kind: bytes) -> _AviTrack | None:
    (size,) = unpack_from("<I", data, 4)
    if size > len(data) - 8:
        raise truncated("AVI", f"ends in a chunk of {size} bytes")
    chunks = _read_chunks(data)
    track = next((chunk for chunk in chunks if chunk.kind == b"strh" and data.startswith(kind, chunk.start)), None)
    layout = next((chunk for chunk in chunks if chunk.kind == b"strf"), None)
    if track is None or layout is None:
        return None
    scale, rate, _, parts = unpack_from("<IIII", data, track.start + 20)
    return _AviTrack(scale, rate, parts, layout.start)


def _read_chunks(data: bytes) -> Iterator[_AviChunk]:
    """Yields the chunks of all lists."""
    position = 12
    for _ in range(MAX_CHUNKS):
        if position + 8 > len(data):
            return
        kind, size = unpack_from("<4sI", data, position)
        yield _AviChunk(kind, position + 8)
        position += 12 if kind == b"LIST" else 8 + size + size % 2
