"""Whether bytes are the image that they are said to be, and one that executors are given."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from cornserve.gateway.media.errors import ImageError
from cornserve.gateway.media.formats.base import Format, Header
from cornserve.gateway.media.header import KNOWN, header_of
from cornserve.limits import MIB, Limits

MIN_SIDE = 4
"""Pixels. Libraries guess from an array's shape which side is the colours', and take a shorter one for it."""

MEGA = 1_000_000

QUICK = 256 * 1024
"""Bytes that are looked at sooner than a thread would be."""

_FORMATS: dict[str, Format] = {
    "image/png": "PNG",
    "image/x-png": "PNG",
    "image/jpeg": "JPEG",
    "image/jpg": "JPEG",
    "image/pjpeg": "JPEG",
    "image/webp": "WEBP",
    "image/gif": "GIF",
}

_SAYS_NOTHING = ("", "application/octet-stream", "binary/octet-stream")
"""What servers say that do not know."""


async def inspected(data: bytes, media_type: str, limits: Limits, *, is_vague: bool = False) -> tuple[Header, str]:
    """What it says of itself, and its digest. Raises an `ImageError`.

    Args:
        is_vague: whether a media type may say nothing.
    """
    if len(data) <= QUICK:
        return _inspected(data, media_type, limits, is_vague)
    return await asyncio.to_thread(_inspected, data, media_type, limits, is_vague)


def check_bytes(size: int, limits: Limits) -> None:
    if size > limits.image_mib * MIB:
        raise ImageError("image_too_large", f"it has {size} bytes ({limits.hint('image-mib')})")


def _inspected(data: bytes, media_type: str, limits: Limits, is_vague: bool) -> tuple[Header, str]:
    says_something = not (is_vague and media_type in _SAYS_NOTHING)
    if says_something and media_type not in _FORMATS:
        raise ImageError("unsupported_image", f"it is said to be {media_type[:80]!r}: {KNOWN} are known")
    header = header_of(data)
    if says_something and _FORMATS[media_type] != header.format:
        raise ImageError("unsupported_image", f"it is said to be {media_type}, and its content is {header.format}")
    _check_size(header, limits)
    return header, sha256(data).hexdigest()


def _check_size(header: Header, limits: Limits) -> None:
    size = f"it has {header.width}×{header.height} pixels"
    if min(header.width, header.height) < MIN_SIDE:
        raise ImageError("image_too_small", f"{size}: each side has to have at least {MIN_SIDE}")
    if header.width * header.height > limits.image_megapixels * MEGA:
        raise ImageError("image_too_large", f"{size} ({limits.hint('image-megapixels')})")
