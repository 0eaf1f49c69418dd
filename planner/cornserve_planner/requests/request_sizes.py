"""The sizes of a request, on which the time of a component can depend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from cornserve_planner.requests.request import WorkloadRequest

SizeUnit = Literal[
    "text_tokens",
    "output_tokens",
    "images",
    "image_pixels",
    "image_tokens",
    "video_seconds",
    "video_tokens",
    "audio_seconds",
    "audio_tokens",
    "output_images",
    "output_image_pixels",
    "output_audio_seconds",
]
"""A quantity of a request. Quantities of media are sums over all media of the request."""

RequestSizes: TypeAlias = dict[SizeUnit, Annotated[float, Field(ge=0)]]
"""The known sizes of a request. Unknown sizes are absent."""


def request_sizes(request: WorkloadRequest) -> RequestSizes:
    sizes: dict[SizeUnit, float | None] = {
        "text_tokens": request.text_tokens,
        "output_tokens": request.output_tokens,
        "images": len(request.images),
        "image_pixels": _total(_pixels(image.width, image.height) for image in request.images),
        "image_tokens": _total(image.tokens for image in request.images),
        "video_seconds": _total(video.seconds for video in request.videos),
        "video_tokens": _total(video.tokens for video in request.videos),
        "audio_seconds": _total(audio.seconds for audio in request.audios),
        "audio_tokens": _total(audio.tokens for audio in request.audios),
        "output_images": len(request.output_images) or (None if "image" in request.output_modalities else 0),
        "output_image_pixels": _total(_pixels(image.width, image.height) for image in request.output_images)
        if request.output_images or "image" not in request.output_modalities
        else None,
        "output_audio_seconds": request.output_audio_seconds if "audio" in request.output_modalities else 0,
    }
    return {unit: float(size) for unit, size in sizes.items() if size is not None}


def mean_sizes(sizes: Sequence[RequestSizes]) -> RequestSizes:
    """Returns the means of the sizes that all requests state."""
    known = [unit for unit in sizes[0] if all(unit in each for each in sizes)]
    return {unit: math.fsum(each[unit] for each in sizes) / len(sizes) for unit in known}


def _pixels(width: int | None, height: int | None) -> int | None:
    return None if width is None or height is None else width * height


def _total(sizes: Iterable[float | None]) -> float | None:
    """Returns the sum; None if a size is unknown."""
    total = 0.0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
