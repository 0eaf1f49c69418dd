from __future__ import annotations

from typing import Literal, NamedTuple

from cornserve.gateway.media.errors import ImageError

Format = Literal["PNG", "JPEG", "WEBP", "GIF"]
"""As Pillow names them."""


class Header(NamedTuple):
    format: Format
    width: int
    height: int


def animated(name: str) -> ImageError:
    return ImageError("unsupported_image", f"it is an animated {name}: send a single frame")


def truncated(name: str) -> ImageError:
    return ImageError("invalid_image", f"it is truncated: this {name} has no end")


def broken(name: str, what: str) -> ImageError:
    return ImageError("invalid_image", f"it is broken: this {name} {what}")
