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
    """An image of a request is not usable. The client receives the path of the image's part and the message."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
