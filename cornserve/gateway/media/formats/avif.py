from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import ImageHeader, broken
from cornserve.gateway.media.formats.isobmff import read_boxes

MAX_BOXES = 10_000

_BRANDS = (b"avif", b"avis")
_SIZE = b"ispe"
_CONTAINERS = {b"meta": 4, b"iprp": 0, b"ipco": 0}


def is_avif(data: bytes) -> bool:
    """Returns whether the type of the file, or one that it is compatible with, is AVIF."""
    end = int.from_bytes(data[:4])
    return data[4:8] == b"ftyp" and any(data[at : at + 4] in _BRANDS for at in range(8, min(end, 256), 4))


def read_header(data: bytes) -> ImageHeader:
    """Returns the largest size in the file, as parts of the image and its preview have smaller ones."""
    boxes = (box for box in read_boxes(data, MAX_BOXES, "AVIF", _CONTAINERS) if box.kind == _SIZE)
    sizes = [unpack_from(">II", data, box.start + 4) for box in boxes]
    if not sizes:
        raise broken("AVIF", "has no size")
    width, height = max(sizes)
    return ImageHeader("AVIF", width, height)
