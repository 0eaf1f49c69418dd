from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import AudioHeader, broken, too_many_packets, truncated

MAGIC = b"fLaC"

MAX_BLOCKS = 1000
"""The maximum number of metadata blocks before the first frame."""

_LAST_BLOCK = 0x80
_SYNC = 0x7FFC
"""The first 15 bits of a frame (RFC 9639, section 9.1)."""
_VARIABLE = 1
"""The next bit. If it is set, the number of a frame is that of its first sample."""

_FIXED_SIZES = {1: 192, **{code: 144 << code for code in range(2, 6)}, **{code: 1 << code for code in range(8, 16)}}
"""The samples in a frame by code."""
_SIZE_8_BITS, _SIZE_16_BITS = 6, 7
_MIN_FRAME_BYTES = 8

MAX_OTHER_SYNCS = 10_000
"""The maximum number of times that the samples contain the start of a frame. It is random for each 64 KiB."""


def read_header(data: bytes, max_seconds: int, max_frames: int) -> AudioHeader:
    """Counts the samples if the header lacks their number, as in files that were written to a pipe.

    Raises a `MediaError` if it counts more than `max_frames` frames.
    """
    (packed,) = unpack_from(">Q", data, 18)
    if data[4] & 0x7F != 0:
        raise broken("FLAC", "does not begin with its stream information")
    sample_rate = packed >> 44
    start = _first_frame(data)
    samples: int = packed & 0xFFFFFFFFF or _count_samples(data, start, max_seconds * sample_rate, max_frames)
    return AudioHeader("FLAC", sample_rate, (packed >> 41 & 7) + 1, samples)


def _first_frame(data: bytes) -> int:
    """Returns the position after the metadata blocks. Raises a `MediaError` unless a frame is there.

    The header does not contain the size of the frames: only a decoder detects that later ones are missing.
    """
    position: int = len(MAGIC)
    for _ in range(MAX_BLOCKS):
        (block,) = unpack_from(">I", data, position)
        position += 4 + (block & 0xFFFFFF)
        if block >> 24 & _LAST_BLOCK:
            break
    else:
        raise broken("FLAC", f"has {MAX_BLOCKS} metadata blocks and no frame")
    if len(data) - position < 2:
        raise truncated("FLAC", "has no frame")
    (start,) = unpack_from(">H", data, position)
    if start >> 1 != _SYNC:
        raise broken("FLAC", "has no frame after its metadata")
    return position


def _count_samples(data: bytes, position: int, max_samples: int, max_frames: int) -> int:
    """Returns the samples of all frames, or a number above `max_samples`. A frame does not contain its size."""
    sync = data[position : position + 2]
    number = samples = frames = others = 0
    while position >= 0 and samples <= max_samples:
        block_samples = _block_samples(data, position, number)
        if block_samples:
            samples += block_samples
            frames += 1
            if frames > max_frames:
                raise too_many_packets(max_frames)
            number += block_samples if sync[1] & _VARIABLE else 1
        elif (others := others + 1) > MAX_OTHER_SYNCS or not samples:
            raise broken("FLAC", "has invalid data in place of frames")
        position = data.find(sync, position + _MIN_FRAME_BYTES if block_samples else position + 1)
    return samples


def _block_samples(data: bytes, position: int, number: int) -> int:
    """Returns the samples of each channel in the frame of this number, or 0 if none is here (RFC 9639, section 9.1)."""
    code, rate = data[position + 2] >> 4, data[position + 2] & 0xF
    end = position + 4
    leading = 8 - (data[end] ^ 0xFF).bit_length()
    found = data[end] & 0x7F >> leading
    for byte in data[end + 1 : end + leading]:
        found = found << 6 | byte & 0x3F
    end += max(leading, 1)
    size_bytes = {_SIZE_8_BITS: 1, _SIZE_16_BITS: 2}.get(code, 0)
    size = 1 + int.from_bytes(data[end : end + size_bytes])
    end += size_bytes + {12: 1, 13: 2, 14: 2}.get(rate, 0)
    if found != number or code == 0 or end >= len(data) or data[end] != _crc8(data[position:end]):
        return 0
    return size if size_bytes else _FIXED_SIZES[code]


def _crc8_of_byte(value: int) -> int:
    for _ in range(8):
        value = value << 1 ^ (0x107 if value & 0x80 else 0)
    return value


_CRC8 = bytes(map(_crc8_of_byte, range(256)))


def _crc8(header: bytes) -> int:
    value = 0
    for byte in header:
        value = _CRC8[value ^ byte]
    return value
