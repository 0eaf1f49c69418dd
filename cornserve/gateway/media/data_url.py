"""Images that a request contains as a base64 `data:` URL."""

from __future__ import annotations

import binascii

import pybase64  # forty times as fast as the standard library

from cornserve.gateway.media.errors import ImageError

SCHEME = "data:"


def is_data_url(url: str) -> bool:
    return url[: len(SCHEME)].lower() == SCHEME


def parse_media_type(url: str) -> str:
    """Raises an `ImageError` for a URL without a media type, or that is not base64."""
    comma = url.find(",", 0, 256)
    if comma < 0:
        raise ImageError("invalid_image_url", "not a data: URL: send data:image/TYPE;base64,CONTENT")
    media_type, *parameters = url[len(SCHEME) : comma].lower().split(";")
    if not parameters or parameters[-1].strip() != "base64":
        raise ImageError("invalid_image_url", "the data: URL is not base64: send data:image/TYPE;base64,CONTENT")
    return media_type.strip()


def max_decoded_size(url: str) -> int:
    """Returns the number of bytes that the URL contains at most."""
    return (len(url) - url.find(",") - 1) * 3 // 4


def decode_content(url: str) -> bytes:
    text = url[url.find(",") + 1 :]
    try:
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ImageError(
            "invalid_base64_image",
            "invalid base64: it has characters other than A-Z a-z 0-9 + /, or is not padded with =",
        ) from None
