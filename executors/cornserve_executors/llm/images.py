"""The images of a chat: opened where this engine encodes them, else what has arrived from their encoders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import PIL.Image
from vllm.renderers import BaseRenderer

from cornserve.transport import Received
from cornserve_executors.llm.connector import ENCODED
from cornserve_executors.llm.placeholders import IMAGE, Placeholder, Placeholders
from cornserve_executors.media.images import ImageError, open_image
from cornserve_executors.tensors.copies import dtype_name
from cornserve_tasklib.image import EncodedImage, Image, ImagePart


@dataclass(frozen=True, slots=True)
class RawImage:
    where: str
    identifier: str
    """Names its content, as vLLM wants it."""
    pixels: PIL.Image.Image


@dataclass(frozen=True, slots=True)
class ArrivedImage:
    where: str
    identifier: str
    encoded: EncodedImage
    received: Received


class Images:
    """Raises `InvalidRequestError` for an image that this engine cannot take, by its place in the request."""

    def __init__(self, model_config: Any, renderer: BaseRenderer) -> None:
        self._model = model_config.model
        self._dtype = dtype_name(model_config.dtype)
        self._width = model_config.get_inputs_embeds_size()
        limits = renderer.get_mm_processor().info.allowed_mm_limits if model_config.supports_multimodal_inputs else {}
        self._placeholders = Placeholders(model_config, renderer) if IMAGE in limits else None
        self.encodes: bool = limits.get(IMAGE, 0) > 0
        """Whether the engine has the model's encoder."""

    async def of(self, parts: Sequence[ImagePart], received: Sequence[Received]) -> list[RawImage | ArrivedImage]:
        """Opens what is raw, off the event loop.

        Args:
            received: of those that are encoded.
        """
        arrived = iter(received)
        return list(
            await asyncio.gather(
                *(
                    self._raw(part.image) if part.embedding is None else self._arrived(part.image, next(arrived))
                    for part in parts
                )
            )
        )

    async def _raw(self, image: Image) -> RawImage:
        if self._placeholders is None:
            raise ImageError(image.where, f"{self._model} is a model of text, it takes no images")
        if not self.encodes:
            raise ImageError(
                image.where, "the language model has no encoder (with_enc: false), and this is not encoded"
            )
        return RawImage(image.where, image.digest, await asyncio.to_thread(open_image, image))

    async def _arrived(self, image: Image, received: Received) -> ArrivedImage:
        if self._placeholders is None:
            raise ImageError(image.where, f"{self._model} is a model of text, it takes no images")
        encoded = EncodedImage.model_validate_json(received.metadata)
        sent, taken = (received.dtype, *received.shape), (self._dtype, encoded.rows, self._width)
        if sent != taken:
            raise RuntimeError(f"{image.where}: the encoder has sent {sent}, the language model takes {taken}")
        return ArrivedImage(image.where, f"{ENCODED}{encoded.key}", encoded, received)

    async def placeholder(self, image: RawImage | ArrivedImage) -> Placeholder:
        assert self._placeholders is not None
        if isinstance(image, RawImage):
            try:
                return await self._placeholders.raw(image.identifier, image.pixels)
            except ValueError as error:
                raise ImageError(
                    image.where, f"the model's processor refuses it: {error.__cause__ or error}"
                ) from error
        try:
            placeholder = await self._placeholders.encoded(image.identifier, image.encoded)
        except KeyError as error:
            raise RuntimeError(f"{image.where}: the encoder says no {error} of it: is it the same model?") from error
        if placeholder.rows != image.encoded.rows:
            rows = f"{image.encoded.rows} rows instead of {placeholder.rows}"
            raise RuntimeError(f"{image.where}: the encoder has made {rows}: is it the same model?")
        return placeholder
