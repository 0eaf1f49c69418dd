"""The chunks of a PNG file (PNG specification, section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from
from typing import NamedTuple

SIGNATURE = b"\x89PNG\r\n\x1a\n"


class PngChunk(NamedTuple):
    type: bytes
    start: int
    """The offset of the chunk in the file. Its data begins 8 bytes later."""
    end: int
    """The offset after the chunk's checksum. In a truncated file, it may be beyond the end of the file."""


def read_chunks(data: bytes) -> Iterator[PngChunk]:
    """Yields the chunks up to the end of the file, or up to the first incomplete chunk header."""
    position = len(SIGNATURE)
    while position + 8 <= len(data):
        length, chunk_type = unpack_from(">I4s", data, position)
        yield PngChunk(chunk_type, position, position + 12 + length)
        position += 12 + length
