from __future__ import annotations

from struct import unpack_from

from cornserve.gateway.media.formats.base import ImageHeader, truncated

CODESTREAM = b"\xff\x4f\xff\x51"
"""The start of a file without boxes, and of the image in a file with boxes."""

BOXES = b"\0\0\0\x0cjP  \r\n\x87\n"

MAX_HEADER_BYTES = 16 * 1024 * 1024
"""The maximum size of the boxes before the image, such as color profiles."""

_END = b"\xff\xd9"


def read_header(data: bytes) -> ImageHeader:
    start = data.find(CODESTREAM, 0, MAX_HEADER_BYTES)
    if start < 0:
        raise truncated("JPEG 2000", "has no image")
    right, bottom, left, top = unpack_from(">IIII", data, start + 8)
    if data.rfind(_END, start) < 0:
        raise truncated("JPEG 2000")
    return ImageHeader("JPEG2000", right - left, bottom - top)
