"""Writes images as files."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import Any

import PIL.Image

from cornserve_tasklib.image_generation import ImageRequest


def encode_image(image: PIL.Image.Image, request: ImageRequest) -> str:
    """Returns an image file of the request's format, in base64. Blocks."""
    options: dict[str, Any] = {}
    if request.output_format != "png":
        options["quality"] = request.output_compression
    file = BytesIO()
    image.save(file, request.output_format, **options)
    return b64encode(file.getvalue()).decode()
