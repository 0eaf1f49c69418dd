"""Checks an image's media type, format and size before an executor decodes it."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from cornserve.gateway.media.errors import ImageError
from cornserve.gateway.media.formats.base import Format, ImageHeader
from cornserve.gateway.media.image_header import SUPPORTED_FORMATS, read_image_header
from cornserve.limits import MIB, Limits

MIN_SIDE = 4
"""The minimum width and height. Libraries could mistake a shorter side for the color axis of an array."""

MEGA = 1_000_000

INLINE_BYTES = 256 * 1024
"""Images up to this size are inspected without a thread, which would take longer."""

_FORMATS: dict[str, Format] = {
    "image/png": "PNG",
    "image/x-png": "PNG",
    "image/jpeg": "JPEG",
    "image/jpg": "JPEG",
    "image/pjpeg": "JPEG",
    "image/webp": "WEBP",
    "image/gif": "GIF",
}

_UNKNOWN_TYPES = ("", "application/octet-stream", "binary/octet-stream")
"""The media types that servers send for files of an unknown type."""


async def inspect_image(
    data: bytes, media_type: str, limits: Limits, *, allow_unknown: bool = False
) -> tuple[ImageHeader, str]:
    """Returns the image's header and its SHA-256 digest. Raises an `ImageError`.

    Args:
        allow_unknown: whether the media type may be unknown.
    """
    if len(data) <= INLINE_BYTES:
        return _inspect(data, media_type, limits, allow_unknown)
    return await asyncio.to_thread(_inspect, data, media_type, limits, allow_unknown)


def check_bytes(size: int, limits: Limits) -> None:
    if size > limits.image_mib * MIB:
        raise ImageError("image_too_large", f"the file has {size} bytes ({limits.hint('image-mib')})")


def _inspect(data: bytes, media_type: str, limits: Limits, allow_unknown: bool) -> tuple[ImageHeader, str]:
    is_typed = not (allow_unknown and media_type in _UNKNOWN_TYPES)
    if is_typed and media_type not in _FORMATS:
        raise ImageError("unsupported_image", f"unsupported media type {media_type[:80]!r}: send {SUPPORTED_FORMATS}")
    header = read_image_header(data)
    if is_typed and _FORMATS[media_type] != header.format:
        raise ImageError(
            "unsupported_image",
            f"the media type is {media_type}, but the content is {header.format}: send the correct type",
        )
    _check_size(header, limits)
    return header, sha256(data).hexdigest()


def _check_size(header: ImageHeader, limits: Limits) -> None:
    size = f"the image has {header.width}×{header.height} pixels"
    if min(header.width, header.height) < MIN_SIDE:
        raise ImageError("image_too_small", f"{size}: each side must have at least {MIN_SIDE}")
    if header.width * header.height > limits.image_megapixels * MEGA:
        raise ImageError("image_too_large", f"{size} ({limits.hint('image-megapixels')})")
