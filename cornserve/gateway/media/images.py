"""Replaces the image URLs of a request with images."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from cornserve.app.image_slots import ImageSlot
from cornserve.concurrency import gather_all
from cornserve.gateway.errors import ApiError
from cornserve.gateway.media import data_url
from cornserve.gateway.media.errors import ImageError
from cornserve.gateway.media.fetch import ImageFetcher
from cornserve.gateway.media.inspection import MEGA, check_bytes, inspect_image
from cornserve.task import Blob
from cornserve_tasklib.image import Image

ReserveBytes = Callable[[int], None]
"""Called with the size of received data. It may raise an error."""

RunStep = Callable[[Callable[[], bytes]], Awaitable[bytes]]
"""Runs a function that would block other requests for milliseconds, when it is its turn."""

MIN_STEP_CHARACTERS = 64 * 1024
"""Shorter base64 is decoded immediately."""


class ImageLoader:
    """Decodes or fetches images, and checks them."""

    def __init__(self, fetcher: ImageFetcher) -> None:
        self._limits = fetcher.limits
        self._fetcher = fetcher

    async def load(self, slots: Sequence[ImageSlot], reserve_bytes: ReserveBytes, run_step: RunStep) -> None:
        """Replaces the URLs with images. Raises an `ApiError` (400) that names the invalid part."""
        if len(slots) > self._limits.images:
            message = f"the request has {len(slots)} images ({self._limits.hint('images')})"
            raise ApiError(400, message, param="messages", code="too_many_images")
        await gather_all(self._load(slot, reserve_bytes, run_step) for slot in slots)
        self._check_pixels(slots)

    def _check_pixels(self, slots: Sequence[ImageSlot]) -> None:
        """Limits the decoded size, which a small file may exceed."""
        pixels = sum(slot.image.width * slot.image.height for slot in slots)
        if pixels > self._limits.request_megapixels * MEGA:
            message = f"the images have {pixels} pixels in total ({self._limits.hint('request-megapixels')})"
            raise ApiError(400, message, param="messages", code="images_too_large")

    async def _load(self, slot: ImageSlot, reserve_bytes: ReserveBytes, run_step: RunStep) -> None:
        try:
            slot.set_image(await self._image(slot, reserve_bytes, run_step))
        except ImageError as error:
            param = f"{slot.path}.image_url"
            raise ApiError(400, f"{param}: {error.message}", param=param, code=error.code) from error

    async def _image(self, slot: ImageSlot, reserve_bytes: ReserveBytes, run_step: RunStep) -> Image:
        url = slot.url
        if data_url.is_data_url(url):
            media_type = data_url.parse_media_type(url)
            check_bytes(data_url.max_decoded_size(url), self._limits)
            decode = partial(data_url.decode_content, url)
            content = await run_step(decode) if data_url.encoded_size(url) > MIN_STEP_CHARACTERS else decode()
            header, digest = await inspect_image(content, media_type, self._limits)
        else:
            content, media_type = await self._fetcher.fetch(url, reserve_bytes)
            header, digest = await inspect_image(content, media_type, self._limits, allow_unknown=True)
        return Image(
            data=Blob(content),
            format=header.format,
            width=header.width,
            height=header.height,
            digest=digest,
            where=slot.path,
        )
