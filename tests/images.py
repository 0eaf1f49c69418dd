"""Image files that tests send."""

from __future__ import annotations

import io
from hashlib import sha256
from typing import Any

import numpy as np
import PIL.Image

from cornserve.task import Blob
from cornserve_tasklib.image import Image


def noise(seed: int, width: int, height: int) -> PIL.Image.Image:
    """Differs from every other seed's all over."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return PIL.Image.fromarray(pixels)


def file_of(picture: PIL.Image.Image, format: str = "PNG", **options: Any) -> bytes:
    with io.BytesIO() as file:
        picture.save(file, format, **options)
        return file.getvalue()


def image_of(data: bytes, format: str, width: int, height: int, where: str = "messages[0].content[0]") -> Image:
    """As a gateway passes it on."""
    return Image(
        data=Blob(data), format=format, width=width, height=height, digest=sha256(data).hexdigest(), where=where
    )


def sent(picture: PIL.Image.Image, format: str = "PNG", **options: Any) -> Image:
    return image_of(file_of(picture, format, **options), format, picture.width, picture.height)
