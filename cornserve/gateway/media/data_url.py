"""Media that a request contains as a base64 `data:` URL."""

from __future__ import annotations

import binascii
from typing import Self

import pybase64  # forty times as fast as the standard library

from cornserve.gateway.media.errors import MediaError

SCHEME = "data:"

_ESCAPES = {rb"\/": b"/", rb"\u002B": b"+", rb"\u002b": b"+", rb"\u002F": b"/", rb"\u002f": b"/"}
"""Escapes of base64 characters that some JSON encoders write, such as those of PHP and .NET."""


class BodyDataUrl(str):
    """A URL whose base64 is still a part of the request's body, as written in JSON. The string ends before it."""

    base64: memoryview

    def __new__(cls, head: str, base64: memoryview) -> Self:
        url = super().__new__(cls, head)
        url.base64 = base64
        return url


def is_data_url(url: str) -> bool:
    return url[: len(SCHEME)].lower() == SCHEME


def parse_media_type(url: str) -> str:
    """Raises an `MediaError` for a URL without a media type, or that is not base64."""
    comma = url.find(",", 0, 256)
    if comma < 0:
        raise MediaError("invalid_url", "not a data: URL: send data:TYPE;base64,CONTENT")
    media_type, *parameters = url[len(SCHEME) : comma].lower().split(";")
    if not parameters or parameters[-1].strip() != "base64":
        raise MediaError("invalid_url", "the data: URL is not base64: send data:TYPE;base64,CONTENT")
    return media_type.strip()


def encoded_size(url: str) -> int:
    """Returns the number of characters of the base64."""
    return len(url.base64) if isinstance(url, BodyDataUrl) else len(url) - url.find(",") - 1


def max_decoded_size(url: str) -> int:
    """Returns the number of bytes that the URL contains at most."""
    return encoded_size(url) * 3 // 4


def decode_content(url: str) -> bytes:
    try:
        if isinstance(url, BodyDataUrl):
            return _decode_json_string(url.base64)
        return pybase64.b64decode(url[url.find(",") + 1 :], validate=True)
    except (binascii.Error, ValueError):
        raise MediaError(
            "invalid_base64",
            "invalid base64: it has characters other than A-Z a-z 0-9 + /, or is not padded with =",
        ) from None


def _decode_json_string(base64: memoryview) -> bytes:
    """Decodes the base64 in a JSON string, which rarely has escapes."""
    try:
        return pybase64.b64decode(base64, validate=True)
    except binascii.Error:
        content = bytes(base64)
        if b"\\" not in content:
            raise
    for escape, character in _ESCAPES.items():
        content = content.replace(escape, character)
    return pybase64.b64decode(content, validate=True)
