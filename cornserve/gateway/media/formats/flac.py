from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import AudioHeader, broken, truncated

MAGIC = b"fLaC"

MAX_BLOCKS = 1000
"""The maximum number of metadata blocks before the first frame."""

_LAST_BLOCK = 0x80
_SYNC = 0x7FFC
"""The first 15 bits of a frame (RFC 9639, section 9.1)."""


def read_header(data: bytes) -> AudioHeader:
    (packed,) = unpack_from(">Q", data, 18)
    if data[4] & 0x7F != 0:
        raise broken("FLAC", "does not begin with its stream information")
    samples = packed & 0xFFFFFFFFF
    if samples == 0:
        raise MediaError("unsupported", "FLAC without a duration: write it to a file, not to a pipe")
    _check_first_frame(data)
    return AudioHeader("FLAC", packed >> 44, (packed >> 41 & 7) + 1, samples)


def _check_first_frame(data: bytes) -> None:
    """Raises a `MediaError` unless a frame follows the metadata blocks.

    The header does not contain the size of the frames: only a decoder detects that later ones are missing.
    """
    position = len(MAGIC)
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
