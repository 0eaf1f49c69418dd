"""The images of one request: where they stand in it, and what they become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cornserve.concurrency import gather_all
from cornserve.gateway.errors import ApiError
from cornserve.gateway.media import data_url
from cornserve.gateway.media.errors import ImageError
from cornserve.gateway.media.fetch import Fetcher
from cornserve.gateway.media.inspection import MEGA, check_bytes, inspected
from cornserve.task import Blob
from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.image import Image, ImagePart
from cornserve_tasklib.messages import ImageUrlPart

TakeBytes = Callable[[int], None]
"""Told of memory that a request takes; may refuse it by an error."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part with a URL stands in a request, and the image is going to."""

    parts: list[Any]
    index: int
    where: str

    @property
    def url(self) -> str:
        part: ImageUrlPart = self.parts[self.index]
        return part.image_url.url

    @property
    def image(self) -> Image:
        """Once it is there."""
        part: ImagePart = self.parts[self.index]
        return part.image

    def put(self, image: Image) -> None:
        """In the URL's place, so that nothing keeps that, which may be long."""
        self.parts[self.index] = ImagePart(type="image", image=image)


def places_in(request: object) -> list[Place]:
    """In order of appearance."""
    if not isinstance(request, ChatRequest):
        return []
    return [
        Place(message.content, index, f"messages[{number}].content[{index}]")
        for number, message in enumerate(request.messages)
        if isinstance(message.content, list)
        for index, part in enumerate(message.content)
        if isinstance(part, ImageUrlPart)
    ]


class Media:
    def __init__(self, fetcher: Fetcher) -> None:
        self._limits = fetcher.limits
        self._fetcher = fetcher

    async def resolve(self, places: Sequence[Place], take_bytes: TakeBytes) -> None:
        """Puts images in the places of their URLs. Raises the 4xx that says what is wrong with which."""
        if len(places) > self._limits.images:
            message = f"the request has {len(places)} images ({self._limits.hint('images')})"
            raise ApiError(400, message, param="messages", code="too_many_images")
        await gather_all(self._settle(place, take_bytes) for place in places)
        self._check_pixels(places)

    def _check_pixels(self, places: Sequence[Place]) -> None:
        """What is small as a file may be large when it is decoded."""
        pixels = sum(place.image.width * place.image.height for place in places)
        if pixels > self._limits.request_megapixels * MEGA:
            message = f"the images have {pixels} pixels together ({self._limits.hint('request-megapixels')})"
            raise ApiError(400, message, param="messages", code="images_too_large")

    async def _settle(self, place: Place, take_bytes: TakeBytes) -> None:
        try:
            place.put(await self._image(place, take_bytes))
        except ImageError as error:
            param = f"{place.where}.image_url"
            raise ApiError(400, f"{param}: {error.message}", param=param, code=error.code) from error

    async def _image(self, place: Place, take_bytes: TakeBytes) -> Image:
        url = place.url
        if data_url.is_data(url):
            media_type = data_url.media_type_of(url)
            check_bytes(data_url.size_of(url), self._limits)
            content = data_url.content_of(url)
            header, digest = await inspected(content, media_type, self._limits)
        else:
            content, media_type = await self._fetcher.fetch(url, take_bytes)
            header, digest = await inspected(content, media_type, self._limits, is_vague=True)
        return Image(
            data=Blob(content),
            format=header.format,
            width=header.width,
            height=header.height,
            digest=digest,
            where=place.where,
        )
