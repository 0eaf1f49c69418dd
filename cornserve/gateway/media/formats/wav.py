from __future__ import annotations

from math import ceil, floor
from struct import unpack_from
from typing import NamedTuple

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import AudioHeader, broken

MAGIC = (b"RIFF", b"RF64")
"""RF64 (EBU Tech 3306) has the size of its samples in a chunk before them, in 64 bits."""

_SIZE_IN_DS64 = 0xFFFFFFFF

MAX_CHUNKS = 1000
"""The maximum number of chunks before the samples."""

MAX_BLOCK_SAMPLES = 2
"""The maximum number of samples in a byte of ADPCM."""

_PCM, _MS_ADPCM, _FLOAT, _A_LAW, _MU_LAW, _IMA_ADPCM, _EXTENSIBLE = 1, 2, 3, 6, 7, 0x11, 0xFFFE


class _WavLayout(NamedTuple):
    sample_rate: int
    channels: int
    block_bytes: int
    """The bytes of a block, which has samples of all channels."""
    block_samples: int
    """The samples of each channel in a block."""


def read_header(data: bytes) -> AudioHeader:
    if data[8:12] != b"WAVE":
        raise broken("RIFF file", "is not a WAV")
    layout: _WavLayout | None = None
    position, large_size = 12, _SIZE_IN_DS64
    for _ in range(MAX_CHUNKS):
        kind, size = unpack_from("<4sI", data, position)
        position += 8
        if kind == b"fmt ":
            layout = _read_layout(data, position)
        elif kind == b"ds64":
            (large_size,) = unpack_from("<Q", data, position + 8)
        elif kind == b"data":
            if layout is None:
                raise broken("WAV", "has no format before its samples")
            # A file may end early, such as a recording that was interrupted. Decoders accept it, too.
            blocks = min(large_size if size == _SIZE_IN_DS64 else size, len(data) - position) / layout.block_bytes
            samples = (floor(blocks) if layout.block_samples == 1 else ceil(blocks)) * layout.block_samples
            return AudioHeader("WAV", layout.sample_rate, layout.channels, samples)
        position += size + size % 2
    raise broken("WAV", f"has {MAX_CHUNKS} chunks and no samples")


def _read_layout(data: bytes, position: int) -> _WavLayout:
    encoding, channels, sample_rate, _, frame_bytes, bits = unpack_from("<HHIIHH", data, position)
    if encoding == _EXTENSIBLE:
        (encoding,) = unpack_from("<H", data, position + 24)
    if encoding in (_MS_ADPCM, _IMA_ADPCM):
        (block_samples,) = unpack_from("<H", data, position + 18)
        if frame_bytes == 0 or block_samples > MAX_BLOCK_SAMPLES * frame_bytes:
            raise broken("WAV", "has an inconsistent block size")
        return _WavLayout(sample_rate, channels, frame_bytes, block_samples)
    if encoding not in (_PCM, _FLOAT, _A_LAW, _MU_LAW):
        raise MediaError("unsupported", f"WAV with the encoding {encoding:#x}: save it as PCM")
    if frame_bytes == 0 or frame_bytes != channels * ((bits + 7) // 8):
        raise broken("WAV", "has an inconsistent sample size")
    return _WavLayout(sample_rate, channels, frame_bytes, 1)
