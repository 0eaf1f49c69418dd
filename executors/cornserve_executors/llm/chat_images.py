"""The images of a chat: opened where this engine encodes them, else what has arrived from their encoders.

Decoded images are bounded over all requests (`media/decode_pool.py`). vLLM's processor has one thread, and what it
makes of an image replaces it: so an image is open while it waits for that thread, and no longer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import PIL.Image
from vllm.renderers import BaseRenderer

from cornserve.concurrency import gather_all
from cornserve.transport import TensorView
from cornserve_executors.llm.connector import ENCODED
from cornserve_executors.llm.placeholders import IMAGE, Placeholder, PlaceholderRenderer
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.images import UnusableImageError, decode_image
from cornserve_tasklib.image import EncodedImage, Image, ImagePart

SMALL_PIXELS = 4_000_000
"""What has no more than these does not wait for what has."""


@dataclass(frozen=True, slots=True)
class RawImage:
    image: Image

    @property
    def where(self) -> str:
        return self.image.where

    @property
    def identifier(self) -> str:
        """Names its content, as vLLM wants it."""
        return self.image.digest

    @property
    def pixels(self) -> int:
        return self.image.width * self.image.height


@dataclass(frozen=True, slots=True)
class ReceivedImage:
    where: str
    identifier: str
    encoded: EncodedImage
    received: TensorView


class ChatImages:
    """Raises `InvalidRequestError` for an image that this engine cannot take, by its place in the request."""

    def __init__(self, model_config: Any, renderer: BaseRenderer) -> None:
        self._model = model_config.model
        self._width = model_config.get_inputs_embeds_size()
        limits = renderer.get_mm_processor().info.allowed_mm_limits if model_config.supports_multimodal_inputs else {}
        self._placeholders = PlaceholderRenderer(model_config, renderer) if IMAGE in limits else None
        self.encodes: bool = limits.get(IMAGE, 0) > 0
        """Whether the engine has the model's encoder."""
        self._decode_pools = DecodePools(SMALL_PIXELS)

    def of(self, parts: Sequence[ImagePart], received: Sequence[TensorView]) -> list[RawImage | ReceivedImage]:
        """What is known of each part's image, in order. Decodes nothing.

        Args:
            received: the embeddings of those that are encoded, in their order.

        Raises:
            UnusableImageError: this engine takes no such image.
            RuntimeError: what has arrived is not `(rows, hidden_size)` of this model.
        """
        arrived = iter(received)
        return [
            self._raw(part.image) if part.embedding is None else self._arrived(part.image, next(arrived))
            for part in parts
        ]

    @asynccontextmanager
    async def opened(self, images: Sequence[RawImage], owner: str) -> AsyncIterator[list[PIL.Image.Image]]:
        """Decodes them, off the event loop and in the owner's turn. They are gone when the block ends."""
        pixels = sum(image.pixels for image in images)
        async with self._decode_pools.pool_for(pixels).reserve(pixels, owner) as pool:
            opened = await gather_all(pool.run(partial(decode_image, one.image)) for one in images)
            try:
                yield opened
            finally:
                for picture in opened:
                    picture.close()

    def _raw(self, image: Image) -> RawImage:
        if self._placeholders is None:
            raise UnusableImageError(image.where, f"{self._model} is a model of text, it takes no images")
        if not self.encodes:
            raise UnusableImageError(
                image.where, "the language model has no encoder (with_enc: false), and this is not encoded"
            )
        return RawImage(image)

    def _arrived(self, image: Image, received: TensorView) -> ReceivedImage:
        if self._placeholders is None:
            raise UnusableImageError(image.where, f"{self._model} is a model of text, it takes no images")
        encoded = EncodedImage.model_validate_json(received.metadata)
        taken = (encoded.rows, self._width)
        if received.shape != taken:
            sent = received.shape
            raise RuntimeError(f"{image.where}: the encoder has sent {sent}, the language model takes {taken}")
        return ReceivedImage(image.where, f"{ENCODED}{encoded.key}", encoded, received)

    async def placeholder(self, image: RawImage | ReceivedImage, owner: str) -> Placeholder:
        if isinstance(image, ReceivedImage):
            return await self._of_arrived(image)
        async with self.opened([image], owner) as (picture,):
            return await self.processed(image, picture)

    async def processed(self, image: RawImage, picture: PIL.Image.Image) -> Placeholder:
        assert self._placeholders is not None
        try:
            return await self._placeholders.raw(image.identifier, picture)
        except ValueError as error:
            raise UnusableImageError(
                image.where, f"the model's processor refuses it: {error.__cause__ or error}"
            ) from error

    async def _of_arrived(self, image: ReceivedImage) -> Placeholder:
        assert self._placeholders is not None
        try:
            placeholder = await self._placeholders.encoded(image.identifier, image.encoded)
        except KeyError as error:
            raise RuntimeError(f"{image.where}: the encoder says no {error} of it: is it the same model?") from error
        if placeholder.rows != image.encoded.rows:
            rows = f"{image.encoded.rows} rows instead of {placeholder.rows}"
            raise RuntimeError(f"{image.where}: the encoder has made {rows}: is it the same model?")
        return placeholder
