from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import AudioHeader, broken, truncated

MAGIC = b"RIFF"

MAX_CHUNKS = 1000
"""The maximum number of chunks before the samples."""

_UNKNOWN_SIZE = 0xFFFFFFFF
"""The size of the samples in a file that was written to a pipe: they extend to the end of the file."""

_PCM, _FLOAT, _A_LAW, _MU_LAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE


def read_header(data: bytes) -> AudioHeader:
    if data[8:12] != b"WAVE":
        raise broken("RIFF file", "is not a WAV")
    layout: tuple[int, int, int] | None = None
    position = 12
    for _ in range(MAX_CHUNKS):
        kind, size = unpack_from("<4sI", data, position)
        position += 8
        if kind == b"fmt ":
            layout = _read_layout(data, position)
        elif kind == b"data":
            if layout is None:
                raise broken("WAV", "has no format before its samples")
            sample_rate, channels, frame_bytes = layout
            available = len(data) - position
            if size == _UNKNOWN_SIZE:
                size = available
            if size > available:
                raise truncated("WAV", f"ends in a chunk of {size} bytes")
            return AudioHeader("WAV", sample_rate, channels, size // frame_bytes)
        position += size + size % 2
    raise broken("WAV", f"has {MAX_CHUNKS} chunks and no samples")


def _read_layout(data: bytes, position: int) -> tuple[int, int, int]:
    """Returns the samples per second, the channels, and the bytes of a sample of all channels."""
    encoding, channels, sample_rate, _, frame_bytes, bits = unpack_from("<HHIIHH", data, position)
    if encoding == _EXTENSIBLE:
        (encoding,) = unpack_from("<H", data, position + 24)
    if encoding not in (_PCM, _FLOAT, _A_LAW, _MU_LAW):
        raise MediaError("unsupported", f"WAV with the encoding {encoding:#x}: save it as PCM")
    if frame_bytes == 0 or frame_bytes != channels * ((bits + 7) // 8):
        raise broken("WAV", "has an inconsistent sample size")
    return sample_rate, channels, frame_bytes
