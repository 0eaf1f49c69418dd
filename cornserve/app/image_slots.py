"""Finds the image URLs in a request, which are replaced with images before the task runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.image import Image, ImagePart
from cornserve_tasklib.messages import ImageUrlPart


@dataclass(frozen=True, slots=True)
class ImageSlot:
    """The position of an image URL in a request, which the image replaces."""

    parts: list[Any]
    index: int
    path: str
    """The path of the part in the request, such as `messages[0].content[1]`."""

    @property
    def url(self) -> str:
        part: ImageUrlPart = self.parts[self.index]
        return part.image_url.url

    @property
    def image(self) -> Image:
        """The image, after `set_image`."""
        part: ImagePart = self.parts[self.index]
        return part.image

    def replace_url(self, url: str) -> None:
        part: ImageUrlPart = self.parts[self.index]
        part.image_url.url = url

    def set_image(self, image: Image) -> None:
        """Replaces the URL, so that a long one does not stay in memory."""
        self.parts[self.index] = ImagePart(type="image", image=image)


def find_image_slots(request: object) -> list[ImageSlot]:
    """Returns the slots in the order of the request."""
    if not isinstance(request, ChatRequest):
        return []
    return [
        ImageSlot(message.content, index, f"messages[{number}].content[{index}]")
        for number, message in enumerate(request.messages)
        if isinstance(message.content, list)
        for index, part in enumerate(message.content)
        if isinstance(part, ImageUrlPart)
    ]
