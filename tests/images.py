"""Images for tests."""

from __future__ import annotations

import io
from hashlib import sha256
from typing import Any

import numpy as np
import PIL.Image

from cornserve.task import Blob
from cornserve_tasklib.media import Image


def noise(seed: int, width: int, height: int) -> PIL.Image.Image:
    """Returns random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return PIL.Image.fromarray(pixels)


def encode_file(picture: PIL.Image.Image, format: str = "PNG", **options: Any) -> bytes:
    """Returns the file that Pillow writes."""
    with io.BytesIO() as file:
        picture.save(file, format, **options)
        return file.getvalue()


def image_from_file(data: bytes, format: str, width: int, height: int, where: str = "messages[0].content[0]") -> Image:
    """Returns the `Image` that a gateway makes of a file."""
    return Image(
        data=Blob(data), format=format, width=width, height=height, digest=sha256(data).hexdigest(), where=where
    )


def as_image(picture: PIL.Image.Image, format: str = "PNG", **options: Any) -> Image:
    """Returns the `Image` that a gateway makes of a picture."""
    return image_from_file(encode_file(picture, format, **options), format, picture.width, picture.height)
