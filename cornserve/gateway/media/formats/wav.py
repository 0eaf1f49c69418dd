from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor
from struct import unpack_from
from typing import NamedTuple

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats import mp3
from cornserve.gateway.media.formats.base import AudioHeader, broken

MAGIC = (b"RIFF", b"RF64")
"""RF64 (EBU Tech 3306) has the size of its samples in a chunk before them, in 64 bits."""

_W64_END = bytes.fromhex("f3acd3118cd100c04f8edb8a")
"""The end of the names of all chunks of a W64 (Sony Wave64), but the first one."""
W64_MAGIC = b"riff" + bytes.fromhex("2e91cf11a5d628db04c10000")
_W64_WAVE = b"wave" + _W64_END
_W64_HEADER_BYTES = 24

_SIZE_IN_DS64 = 0xFFFFFFFF

MAX_CHUNKS = 1000
"""The maximum number of chunks before the samples."""

MAX_BLOCK_SAMPLES = 2
"""The maximum number of samples in a byte of ADPCM."""

_PCM, _MS_ADPCM, _FLOAT, _A_LAW, _MU_LAW, _IMA_ADPCM, _MP3, _EXTENSIBLE = 1, 2, 3, 6, 7, 0x11, 0x55, 0xFFFE


class _WavLayout(NamedTuple):
    sample_rate: int
    channels: int
    block_bytes: int
    """The bytes of a block, which has samples of all channels."""
    block_samples: int
    """The samples of each channel in a block."""


class _WavChunk(NamedTuple):
    kind: bytes
    start: int
    """The position of the content."""
    size: int


def read_header(data: bytes, max_seconds: int) -> AudioHeader:
    """Reads the header of a WAV, RF64 or W64 file. Counts the frames of MP3 until `max_seconds`."""
    encoding, layout = 0, _WavLayout(0, 0, 0, 0)
    for chunk in _w64_chunks(data) if data.startswith(W64_MAGIC) else _wav_chunks(data):
        if chunk.kind == b"fmt ":
            encoding = _read_encoding(data, chunk.start)
            if encoding != _MP3:
                layout = _read_layout(data, chunk.start, encoding)
        elif chunk.kind == b"data":
            if encoding == 0:
                raise broken("WAV", "has no format before its samples")
            if encoding == _MP3:
                frames = data[chunk.start : chunk.start + chunk.size]
                if not mp3.is_mp3(frames):
                    raise broken("WAV", "has no MP3 frame")
                return mp3.read_header(frames, max_seconds)._replace(format="WAV")
            # A file may end early, such as a recording that was interrupted. Decoders accept it, too.
            blocks = min(chunk.size, len(data) - chunk.start) / layout.block_bytes
            samples = (floor(blocks) if layout.block_samples == 1 else ceil(blocks)) * layout.block_samples
            return AudioHeader("WAV", layout.sample_rate, layout.channels, samples)
    raise broken("WAV", f"has {MAX_CHUNKS} chunks and no samples")


def _wav_chunks(data: bytes) -> Iterator[_WavChunk]:
    """Yields at most `MAX_CHUNKS`."""
    if data[8:12] != b"WAVE":
        raise broken("RIFF file", "is not a WAV")
    position, large_size = 12, _SIZE_IN_DS64
    for _ in range(MAX_CHUNKS):
        kind, size = unpack_from("<4sI", data, position)
        position += 8
        if kind == b"ds64":
            (large_size,) = unpack_from("<Q", data, position + 8)
        yield _WavChunk(kind, position, large_size if kind == b"data" and size == _SIZE_IN_DS64 else size)
        position += size + size % 2


def _w64_chunks(data: bytes) -> Iterator[_WavChunk]:
    """Yields at most `MAX_CHUNKS`. Their sizes include the header, and their positions are multiples of 8."""
    if data[24:40] != _W64_WAVE:
        raise broken("W64", "is not audio")
    position = 40
    for _ in range(MAX_CHUNKS):
        kind, end, size = unpack_from("<4s12sQ", data, position)
        if size < _W64_HEADER_BYTES:
            raise broken("W64", "has a chunk with an invalid size")
        yield _WavChunk(kind if end == _W64_END else b"", position + _W64_HEADER_BYTES, size - _W64_HEADER_BYTES)
        position += size + -size % 8


def _read_encoding(data: bytes, position: int) -> int:
    encoding: int
    (encoding,) = unpack_from("<H", data, position)
    if encoding == _EXTENSIBLE:
        (encoding,) = unpack_from("<H", data, position + 24)
    return encoding


def _read_layout(data: bytes, position: int, encoding: int) -> _WavLayout:
    channels, sample_rate, _, frame_bytes, bits = unpack_from("<HIIHH", data, position + 2)
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
