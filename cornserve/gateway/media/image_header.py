"""Reads the format and the size of an image from its header, without decoding it.

The readers also reject unsupported color formats, and truncated images other than BMP and TIFF, before an executor gets
them. They read the first frame of an animation. The sender controls the number of an image's blocks, so all loops over
blocks are bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats import avif, bmp, gif, jpeg, jpeg2000, png, tiff, webp
from cornserve.gateway.media.formats.base import ImageHeader, truncated_header
from cornserve.png import SIGNATURE

_READERS: dict[bytes, Callable[[bytes], ImageHeader]] = {
    SIGNATURE: png.read_header,
    jpeg.MAGIC: jpeg.read_header,
    **dict.fromkeys(gif.MAGICS, gif.read_header),
    webp.MAGIC: webp.read_header,
    bmp.MAGIC: bmp.read_header,
    **dict.fromkeys(tiff.MAGICS, tiff.read_header),
    **dict.fromkeys((jpeg2000.BOXES, jpeg2000.CODESTREAM), jpeg2000.read_header),
}

SUPPORTED_FORMATS = "PNG, JPEG, WebP, GIF, AVIF, BMP, TIFF or JPEG 2000"


def read_image_header(data: bytes) -> ImageHeader:
    """Raises an `MediaError`."""
    read_header = _find_reader(data)
    if read_header is not None:
        try:
            return read_header(data)
        except (struct.error, IndexError, OverflowError):
            raise truncated_header() from None
    if not data:
        raise MediaError("invalid", f"the file is empty: send {SUPPORTED_FORMATS}")
    raise MediaError("unsupported", f"unsupported image format: send {SUPPORTED_FORMATS}")


def _find_reader(data: bytes) -> Callable[[bytes], ImageHeader] | None:
    if avif.is_avif(data):
        return avif.read_header
    return next((reader for magic, reader in _READERS.items() if data.startswith(magic)), None)
