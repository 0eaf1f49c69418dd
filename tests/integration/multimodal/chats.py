"""Chats with raw and encoded images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import PIL.Image

from cornserve.task import Tensor
from cornserve_tasklib import ChatMessage, ChatRequest
from cornserve_tasklib.media import MediaPart
from cornserve_tasklib.messages import TextPart
from tests.images import as_image, noise

Part = str | PIL.Image.Image

TOKENS = 24

CONTENTS: dict[str, list[Part]] = {
    "text only": ["Tell me something."],
    "one image": [noise(1, 112, 84), "What is it?"],
    "several of different sizes": ["Compare ", noise(2, 112, 84), " with ", noise(3, 60, 200), " please."],
    "the same twice": [noise(4, 84, 84), noise(4, 84, 84), "?"],
    "images only": [noise(5, 300, 290), noise(6, 30, 90)],
}


def images_in(content: Sequence[Part]) -> list[PIL.Image.Image]:
    return [part for part in content if not isinstance(part, str)]


def combinations(content: Sequence[Part], kinds: str) -> list[str]:
    """Returns all combinations of raw ("r") and encoded ("e") images."""
    return ["".join(combination) for combination in product(kinds, repeat=len(images_in(content)))]


def chat(content: Sequence[Part], kind: str = "", **fields: Any) -> ChatRequest:
    """Returns a chat request. By default all images are raw."""
    image_kinds = iter(kind or "r" * len(images_in(content)))
    parts = [
        TextPart(type="text", text=part) if isinstance(part, str) else _image(part, next(image_kinds))
        for part in content
    ]
    options = {"max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True} | fields
    return ChatRequest(messages=[ChatMessage(role="user", content=[*parts])], **options)


def _image(picture: PIL.Image.Image, kind: str) -> MediaPart:
    image = as_image(picture)
    return (
        MediaPart(type="media", media=image)
        if kind == "r"
        else MediaPart(type="media", media=image.without_data, embedding=Tensor())
    )
