from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import ImageHeader, broken

MAGICS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""Little-endian and big-endian files, with offsets of 32 and 64 bits."""

MAX_FIELDS = 1000

_WIDTH, _HEIGHT, _ORIENTATION = 256, 257, 274
_TYPES = {3: "H", 4: "I", 16: "Q"}
"""The types of numbers. All fit into their field."""
_SIDEWAYS = (5, 6, 7, 8)
"""Orientations that swap width and height. Decoders apply them."""


def read_header(data: bytes) -> ImageHeader:
    """Reads the first image."""
    order, is_big = "<" if data.startswith(b"II") else ">", b"+" in data[2:4]
    (start,) = unpack_from(f"{order}Q" if is_big else f"{order}I", data, 8 if is_big else 4)
    (count,) = unpack_from(f"{order}Q" if is_big else f"{order}H", data, start)
    head, field_bytes, value = (8, 20, 12) if is_big else (2, 12, 8)
    if count > MAX_FIELDS:
        raise broken("TIFF", f"has more than {MAX_FIELDS} fields")
    numbers: dict[int, int] = {}
    for position in range(start + head, start + head + count * field_bytes, field_bytes):
        tag, kind = unpack_from(f"{order}HH", data, position)
        if tag in (_WIDTH, _HEIGHT, _ORIENTATION) and kind in _TYPES:
            (numbers[tag],) = unpack_from(f"{order}{_TYPES[kind]}", data, position + value)
    if _WIDTH not in numbers or _HEIGHT not in numbers:
        raise broken("TIFF", "has no size")
    size = numbers[_WIDTH], numbers[_HEIGHT]
    return ImageHeader("TIFF", *(size[::-1] if numbers.get(_ORIENTATION) in _SIDEWAYS else size))
