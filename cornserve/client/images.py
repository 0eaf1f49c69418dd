"""Images in chat messages."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

_MAGIC = {b"\x89PNG": "png", b"\xff\xd8": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


def image_part(image: Path | bytes | str) -> dict[str, Any]:
    """Returns a part of a user's message, in the format of OpenAI's API.

    `{"role": "user", "content": [image_part(Path("cat.png")), {"type": "text", …}]}` is a message with an image.

    Args:
        image: the path of a file, the content of a file, or a URL that the gateway fetches.
    Raises:
        OSError: the file cannot be read.
        ValueError: the image is not a PNG, JPEG, WebP or GIF.
    """
    url = image if isinstance(image, str) else _data_url(image if isinstance(image, bytes) else image.read_bytes())
    return {"type": "image_url", "image_url": {"url": url}}


def _data_url(content: bytes) -> str:
    for magic, kind in _MAGIC.items():
        if content.startswith(magic):
            return f"data:image/{kind};base64,{b64encode(content).decode()}"
    raise ValueError("unsupported image format: give a PNG, JPEG, WebP or GIF")
