"""Image files in responses."""

from __future__ import annotations

from pydantic import BaseModel


class GeneratedImage(BaseModel):
    """An image file."""

    b64_json: str
    """The content of the file in base64."""
    seed: int
    """The seed with which the image can be generated again."""
