from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.base import ImageHeader, broken

MAGICS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""Little-endian and big-endian files, with offsets of 32 and 64 bits."""

MAX_FIELDS = 1000

MAX_TILE_PIXELS = 1024 * 1024
"""The maximum size of a tile, except in images with more than half of these pixels: twice the size of the image."""

_WIDTH, _HEIGHT, _ORIENTATION, _TILE_WIDTH, _TILE_HEIGHT = _FIELDS = 256, 257, 274, 322, 323
_TYPES = {3: "H", 4: "I"}
_BIG_TYPES = {**_TYPES, 16: "Q"}
"""The types of numbers that fit into a field."""
_SIDEWAYS = (5, 6, 7, 8)
"""Orientations that swap width and height. Decoders apply them."""


def read_header(data: bytes) -> ImageHeader:
    """Reads the first image. Decoders allocate entire tiles, so tiles may not be much larger than the image."""
    order, is_big = "<" if data.startswith(b"II") else ">", b"+" in data[2:4]
    (start,) = unpack_from(f"{order}Q" if is_big else f"{order}I", data, 8 if is_big else 4)
    (count,) = unpack_from(f"{order}Q" if is_big else f"{order}H", data, start)
    head, field_bytes, value = (8, 20, 12) if is_big else (2, 12, 8)
    if count > MAX_FIELDS:
        raise broken("TIFF", f"has more than {MAX_FIELDS} fields")
    types = _BIG_TYPES if is_big else _TYPES
    numbers: dict[int, int] = {}
    for position in range(start + head, start + head + count * field_bytes, field_bytes):
        tag, kind, values = unpack_from(f"{order}HHQ" if is_big else f"{order}HHI", data, position)
        if tag not in _FIELDS:
            continue
        if tag in numbers or values != 1 or kind not in types:  # Decoders choose different values of such fields.
            raise broken("TIFF", f"has an invalid field {tag}")
        (numbers[tag],) = unpack_from(f"{order}{types[kind]}", data, position + value)
    if _WIDTH not in numbers or _HEIGHT not in numbers:
        raise broken("TIFF", "has no size")
    size = width, height = numbers[_WIDTH], numbers[_HEIGHT]
    tile_width, tile_height = numbers.get(_TILE_WIDTH, 0), numbers.get(_TILE_HEIGHT, 0)
    if tile_width * tile_height > max(MAX_TILE_PIXELS, 2 * width * height):
        problem = f"has tiles of {tile_width}×{tile_height} pixels in an image of {width}×{height}"
        raise MediaError("unsupported", f"the TIFF {problem}: save it without tiles")
    return ImageHeader("TIFF", *(size[::-1] if numbers.get(_ORIENTATION) in _SIDEWAYS else size))
