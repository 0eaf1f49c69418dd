"""The images of a chat: raw images, which this engine encodes, and images received from encoder executors.

The number of decoded pixels is limited over all requests (`media/decode_pool.py`). vLLM's processor has one thread.
An image stays decoded while it waits for that thread, and is closed once the processor's result replaces it.
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
from cornserve_executors.media.image_decoding import UnusableImageError, decode_image
from cornserve_tasklib.image import EncodedImage, Image, ImagePart

SMALL_PIXELS = 4_000_000
"""Images with at most this many pixels do not wait for larger ones."""


@dataclass(frozen=True, slots=True)
class RawImage:
    """An image file, which this engine encodes."""

    image: Image

    @property
    def where(self) -> str:
        return self.image.where

    @property
    def identifier(self) -> str:
        """Identifies the contents in vLLM's caches."""
        return self.image.digest

    @property
    def pixels(self) -> int:
        return self.image.width * self.image.height


@dataclass(frozen=True, slots=True)
class ReceivedImage:
    """An image whose embeddings have been received from an encoder executor."""

    where: str
    identifier: str
    encoded: EncodedImage
    tensor: TensorView


class ChatImages:
    """Decodes and processes the images of chats.

    Raises `InvalidRequestError`, with the image's position in the request, for images that this engine cannot use.
    """

    def __init__(self, model_config: Any, renderer: BaseRenderer) -> None:
        self._model = model_config.model
        self._width = model_config.get_inputs_embeds_size()
        limits = renderer.get_mm_processor().info.allowed_mm_limits if model_config.supports_multimodal_inputs else {}
        self._placeholders = PlaceholderRenderer(model_config, renderer) if IMAGE in limits else None
        self.encodes: bool = limits.get(IMAGE, 0) > 0
        """Whether the engine has loaded the model's encoder."""
        self._decode_pools = DecodePools(SMALL_PIXELS)

    def resolve(self, parts: Sequence[ImagePart], embeddings: Sequence[TensorView]) -> list[RawImage | ReceivedImage]:
        """Returns the image of each part, in order, without decoding it.

        Args:
            embeddings: the embeddings of the encoded images, in order.

        Raises:
            UnusableImageError: this engine does not support the image.
            RuntimeError: an embedding does not have the shape `(rows, hidden_size)` of this model.
        """
        tensors = iter(embeddings)
        return [
            self._raw(part.image) if part.embedding is None else self._received(part.image, next(tensors))
            for part in parts
        ]

    @asynccontextmanager
    async def decoded(self, images: Sequence[RawImage], owner: str) -> AsyncIterator[list[PIL.Image.Image]]:
        """Decodes images in threads, once their pixels are available to `owner`. Closes them when the block ends."""
        pixels = sum(image.pixels for image in images)
        async with self._decode_pools.pool_for(pixels).reserve(pixels, owner) as pool:
            decoded = await gather_all(pool.run(partial(decode_image, image.image)) for image in images)
            try:
                yield decoded
            finally:
                for picture in decoded:
                    picture.close()

    def _raw(self, image: Image) -> RawImage:
        if self._placeholders is None:
            raise UnusableImageError(image.where, f"{self._model} is a text model and does not accept images")
        if not self.encodes:
            raise UnusableImageError(
                image.where, "the image is not encoded, and the language model has no encoder (with_enc: false)"
            )
        return RawImage(image)

    def _received(self, image: Image, tensor: TensorView) -> ReceivedImage:
        if self._placeholders is None:
            raise UnusableImageError(image.where, f"{self._model} is a text model and does not accept images")
        encoded = EncodedImage.model_validate_json(tensor.metadata)
        expected = (encoded.rows, self._width)
        if tensor.shape != expected:
            raise RuntimeError(
                f"{image.where}: the encoder sent embeddings of shape {tensor.shape}, "
                f"but the language model expects {expected}"
            )
        return ReceivedImage(image.where, f"{ENCODED}{encoded.key}", encoded, tensor)

    async def placeholder(self, image: RawImage | ReceivedImage, owner: str) -> Placeholder:
        """Returns the image's placeholder in a prompt."""
        if isinstance(image, ReceivedImage):
            return await self._encoded_placeholder(image)
        async with self.decoded([image], owner) as (pixels,):
            return await self.process(image, pixels)

    async def process(self, image: RawImage, pixels: PIL.Image.Image) -> Placeholder:
        """Runs the model's processor on a decoded image."""
        assert self._placeholders is not None
        try:
            return await self._placeholders.from_pixels(image.identifier, pixels)
        except ValueError as error:
            raise UnusableImageError(
                image.where, f"the model's processor rejects it: {error.__cause__ or error}"
            ) from error

    async def _encoded_placeholder(self, image: ReceivedImage) -> Placeholder:
        assert self._placeholders is not None
        try:
            placeholder = await self._placeholders.from_encoded(image.identifier, image.encoded)
        except KeyError as error:
            raise RuntimeError(
                f"{image.where}: the encoder did not send the field {error}: check that it has the same model"
            ) from error
        if placeholder.rows != image.encoded.rows:
            raise RuntimeError(
                f"{image.where}: the encoder sent {image.encoded.rows} rows instead of {placeholder.rows}: "
                "check that it has the same model"
            )
        return placeholder
