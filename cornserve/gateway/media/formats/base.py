from __future__ import annotations

from typing import Literal, NamedTuple

from cornserve.gateway.media.errors import ImageError

Format = Literal["PNG", "JPEG", "WEBP", "GIF"]
"""Pillow's name of a format."""


class ImageHeader(NamedTuple):
    format: Format
    width: int
    height: int


def animated(name: str) -> ImageError:
    return ImageError("unsupported_image", f"animated {name}: send a single frame")


def truncated(name: str) -> ImageError:
    return ImageError("invalid_image", f"truncated: the {name} has no end marker")


def truncated_header() -> ImageError:
    return ImageError("invalid_image", "truncated: the file ends in its header")


def broken(name: str, problem: str) -> ImageError:
    return ImageError("invalid_image", f"broken: the {name} {problem}")
