"""Opens the image files of responses."""

from __future__ import annotations

from base64 import b64decode
from io import BytesIO

import PIL.Image

from cornserve_tasklib import GeneratedImage


def decoded(image: GeneratedImage) -> PIL.Image.Image:
    return opened(image.b64_json)


def opened(file: str) -> PIL.Image.Image:
    return PIL.Image.open(BytesIO(b64decode(file)))
