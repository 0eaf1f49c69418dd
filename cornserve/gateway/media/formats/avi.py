from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from
from typing import NamedTuple

from cornserve.gateway.media.formats.base import VideoHeader, broken, too_many_frames, truncated, unsupported_codec

MAGIC = b"RIFF"

MAX_CHUNKS = 10_000

_CODECS = frozenset(
    (
        *(b"H264", b"X264", b"AVC1", b"HEVC", b"HVC1", b"VP80", b"VP90", b"AV01", b"MJPG"),
        *(b"MP4V", b"FMP4", b"XVID", b"DIVX", b"DX50"),
    )
)
_VIDEO = b"vids"


class _AviChunk(NamedTuple):
    kind: bytes
    start: int
    """The position of the content."""


def is_avi(data: bytes) -> bool:
    return data.startswith(MAGIC) and data[8:12] == b"AVI "


def read_header(data: bytes, max_frames: int) -> VideoHeader:
    """Reads the first video track. Raises a `MediaError` if it has more than `max_frames` frames."""
    (size,) = unpack_from("<I", data, 4)
    if size > len(data) - 8:
        raise truncated("AVI", f"ends in a chunk of {size} bytes")
    chunks = _read_chunks(data)
    track = next((chunk for chunk in chunks if _is_video(data, chunk)), None)
    layout = next((chunk for chunk in chunks if chunk.kind == b"strf"), None)
    if track is None or layout is None:
        raise broken("AVI", "has no video")
    scale, rate, _, frames = unpack_from("<IIII", data, track.start + 20)
    width, height, codec = unpack_from("<ii4x4s", data, layout.start + 4)
    if codec.upper() not in _CODECS:
        raise unsupported_codec(codec.decode("latin-1"))
    if frames > max_frames:
        raise too_many_frames(max_frames)
    return VideoHeader("AVI", abs(width), abs(height), frames, frames * scale / rate if rate else 0)


def _is_video(data: bytes, chunk: _AviChunk) -> bool:
    return chunk.kind == b"strh" and data.startswith(_VIDEO, chunk.start)


def _read_chunks(data: bytes) -> Iterator[_AviChunk]:
    """Yields the chunks of all lists."""
    position = 12
    for _ in range(MAX_CHUNKS):
        if position + 8 > len(data):
            return
        kind, size = unpack_from("<4sI", data, position)
        yield _AviChunk(kind, position + 8)
        position += 12 if kind == b"LIST" else 8 + size + size % 2
