"""The error for an image that cannot be used."""

from __future__ import annotations

from typing import Literal

Code = Literal[
    "invalid_image_url",
    "invalid_base64_image",
    "failed_to_download_image",
    "unsupported_image",
    "invalid_image",
    "image_too_large",
    "image_too_small",
]


class ImageError(Exception):
    """The message is for the client, and follows the path of the part in the request."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
