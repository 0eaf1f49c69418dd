from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import ImageHeader

MAGIC = b"BM"

_OS2_HEADER = 12
"""The size of the header of OS/2, whose sides have 16 bits."""


def read_header(data: bytes) -> ImageHeader:
    (header,) = unpack_from("<I", data, 14)
    width, height = unpack_from("<HH" if header == _OS2_HEADER else "<ii", data, 18)
    return ImageHeader("BMP", abs(width), abs(height))  # A negative height means that the first row is the top one.
