"""The chunks of a PNG file (PNG specification, section 5)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import pack, unpack_from
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


def png_file(width: int, height: int, colors: Iterable[bytes]) -> bytes:
    """Returns an image whose rows have one color each.

    Args:
        colors: red, green and blue of each row.
    """
    rows = b"".join(b"\0" + color * width for color in colors)
    header = pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
