"""Images that come with their request, as base64."""

from __future__ import annotations

import binascii

import pybase64  # forty times as fast as the standard library's: 10 MiB in less than a millisecond

from cornserve.gateway.media.errors import ImageError

SCHEME = "data:"


def is_data(url: str) -> bool:
    return url[: len(SCHEME)].lower() == SCHEME


def media_type_of(url: str) -> str:
    """Raises an `ImageError` where it has none, or is not base64."""
    comma = url.find(",", 0, 256)
    if comma < 0:
        raise ImageError("invalid_image_url", "this is no data: URL: data:image/TYPE;base64,CONTENT")
    media_type, *parameters = url[len(SCHEME) : comma].lower().split(";")
    if not parameters or parameters[-1].strip() != "base64":
        raise ImageError("invalid_image_url", "a data: URL has to be base64: data:image/TYPE;base64,CONTENT")
    return media_type.strip()


def size_of(url: str) -> int:
    """How many bytes it holds, at most."""
    return (len(url) - url.find(",") - 1) * 3 // 4


def content_of(url: str) -> bytes:
    text = url[url.find(",") + 1 :]
    try:
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ImageError(
            "invalid_base64_image",
            "its base64 is broken: it has characters other than A-Z a-z 0-9 + /, or is not padded with =",
        ) from None
