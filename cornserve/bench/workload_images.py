"""Requests for images with the sizes of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from random import Random
from typing import Any, Self

from pydantic_core import to_json

from cornserve.bench.media_files import image_file
from cornserve.bench.requests import RequestError, random_text
from cornserve.bench.server_api import Operation
from cornserve.bench.workload_chats import pixel_size
from cornserve_planner.requests.request import WorkloadImage, WorkloadRequest
from cornserve_tasklib.image_editing import AUTO
from cornserve_tasklib.image_generation import DEFAULT_SIZE, MAX_IMAGES, MAX_SIDE, TOKEN_PIXELS
from cornserve_tasklib.media import Image


@dataclass(frozen=True, slots=True)
class GeneratedImages:
    """Requests to draw random words, or to change an image by them.

    Args:
        words: words of about one token each.
        size: width and height of the images: "1024x768".
        count: images of a request.
        source: width and height of the image to change; None for requests without one.
    """

    words: int
    size: str = DEFAULT_SIZE
    count: int = 1
    source: tuple[int, int] | None = None

    @classmethod
    def of(cls, request: WorkloadRequest) -> Self:
        """Returns a request for images of the sizes of a request. Raises `RequestError` for other requests."""
        if media := [name for name in ("videos", "audios") if getattr(request, name)]:
            raise RequestError(f"has {media[0]} and output images, which cannot be generated together")
        if request.output_modalities != ("image",):
            raise RequestError("has output images and other output, which cannot be generated together")
        if len(request.images) > 1:
            raise RequestError(f"has {len(request.images)} images and output images: give at most one image")
        source = next(map(pixel_size, request.images), None)
        sizes = {_size(image) for image in request.output_images} or {AUTO if source else DEFAULT_SIZE}
        if len(sizes) > 1:
            raise RequestError(f"has output images of {len(sizes)} sizes: give one size")
        if len(request.output_images) > MAX_IMAGES:
            raise RequestError(f"has {len(request.output_images)} output images: give at most {MAX_IMAGES}")
        return cls(request.text_tokens, sizes.pop(), max(1, len(request.output_images)), source)

    @property
    def operation(self) -> Operation:
        return "images"

    @property
    def key(self) -> bytes:
        return repr(self).encode()

    def make(self, random: Random) -> bytes:
        """Returns a request of an app. The image to change has no file, which JSON cannot contain."""
        if self.source is None:
            return to_json(self._fields(random))
        width, height = self.source
        image = Image(format="PNG", width=width, height=height, digest="", where="image")
        return to_json({**self._fields(random), "image": image})

    def body(self, random: Random) -> Mapping[str, Any]:
        """Returns the fields of a request to the gateway. The image to change is a file."""
        if self.source is None:
            return self._fields(random)
        return {**self._fields(random), "image": image_file(*self.source, random)}

    def _fields(self, random: Random) -> dict[str, Any]:
        return {"prompt": random_text(self.words, random), "size": self.size, "n": self.count}


def _size(image: WorkloadImage) -> str:
    """Returns the size, rounded to tokens of the denoiser."""
    tokens = sqrt(image.tokens or 1)
    width, height = (side / TOKEN_PIXELS if side else tokens for side in (image.width, image.height))
    sides = (TOKEN_PIXELS * max(1, round(side)) for side in (width, height))
    return "x".join(str(min(MAX_SIDE, side)) for side in sides)
