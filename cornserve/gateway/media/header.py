"""What an image says of itself: its format and size, read without decoding it.

Structure is looked at as far as that is cheap: what ends too early, moves, or has colours that models do not know is
found here, and costs no executor anything. The loops over an image's parts are bounded, as its sender makes the parts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from cornserve.gateway.media.errors import ImageError
from cornserve.gateway.media.formats import gif, jpeg, png, webp
from cornserve.gateway.media.formats.base import Header

_READERS: dict[bytes, Callable[[bytes], Header]] = {
    png.MAGIC: png.read,
    jpeg.MAGIC: jpeg.read,
    b"GIF87a": gif.read,
    b"GIF89a": gif.read,
    webp.MAGIC: webp.read,
}

KNOWN = "PNG, JPEG, WebP and GIF"


def header_of(data: bytes) -> Header:
    """Raises an `ImageError`."""
    for magic, read in _READERS.items():
        if data.startswith(magic):
            try:
                return read(data)
            except (struct.error, IndexError):
                raise ImageError("invalid_image", "it is truncated: it ends in its header") from None
    if not data:
        raise ImageError("invalid_image", "it is empty")
    raise ImageError("unsupported_image", f"its content is no image that is known here: {KNOWN} are")
