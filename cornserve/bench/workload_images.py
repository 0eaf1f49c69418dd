"""Requests for images with the sizes of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from random import Random
from typing import Any, Self

from pydantic_core import to_json

from cornserve.bench.requests import RequestError, random_text
from cornserve_planner.workload.request import WorkloadImage, WorkloadRequest
from cornserve_tasklib.image_generation import DEFAULT_SIZE, MAX_IMAGES, MAX_SIDE, TOKEN_PIXELS


@dataclass(frozen=True, slots=True)
class GeneratedImages:
    """Requests to draw random words.

    Args:
        words: words of about one token each.
        size: width and height of the images: "1024x768".
        count: images of a request.
    """

    words: int
    size: str = DEFAULT_SIZE
    count: int = 1

    @classmethod
    def of(cls, request: WorkloadRequest) -> Self:
        """Returns a request for images of the sizes of a request. Raises `RequestError` for other requests."""
        if media := [name for name in ("images", "videos", "audios") if getattr(request, name)]:
            raise RequestError(f"has {media[0]} and output images, which cannot be generated together")
        if request.output_modalities != ("image",):
            raise RequestError("has output images and other output, which cannot be generated together")
        sizes = {_size(image) for image in request.output_images} or {DEFAULT_SIZE}
        if len(sizes) > 1:
            raise RequestError(f"has output images of {len(sizes)} sizes: give one size")
        if len(request.output_images) > MAX_IMAGES:
            raise RequestError(f"has {len(request.output_images)} output images: give at most {MAX_IMAGES}")
        return cls(request.text_tokens, sizes.pop(), max(1, len(request.output_images)))

    @property
    def key(self) -> bytes:
        return repr(self).encode()

    def make(self, random: Random) -> bytes:
        return to_json(self.body(random))

    def body(self, random: Random) -> Mapping[str, Any]:
        return {"prompt": random_text(self.words, random), "size": self.size, "n": self.count}


def _size(image: WorkloadImage) -> str:
    """Returns the size, rounded to tokens of the denoiser."""
    tokens = sqrt(image.tokens or 1)
    width, height = (side / TOKEN_PIXELS if side else tokens for side in (image.width, image.height))
    sides = (TOKEN_PIXELS * max(1, round(side)) for side in (width, height))
    return "x".join(str(min(MAX_SIDE, side)) for side in sides)
