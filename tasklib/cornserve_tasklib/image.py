"""Images in requests, raw and encoded."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import BaseModel, ConfigDict

from cornserve.task import Blob, Tensor
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.sampling_fields import STRICT

PIXELS_PER_TOKEN = 28 * 28
"""The pixels of one token in Qwen2.5-VL, by which the tokens of other models are estimated, too."""


class Image(BaseModel):
    """An image of a request. The gateway has inspected its header, but not decoded it."""

    model_config = STRICT | ConfigDict(frozen=True)

    data: Blob | None = None
    """The image file, or None if the image is encoded: a language model receives either the file or the embeddings."""
    format: str
    """The name of the format in Pillow: "PNG", "JPEG", …"""
    width: Annotated[int, Ge(1)]
    """The width in pixels, from the file's header."""
    height: Annotated[int, Ge(1)]
    """The height in pixels, from the file's header."""
    digest: str
    """SHA-256 of the file, in hexadecimal. Identifies the image in caches."""
    where: str
    """The position in the request, for error messages: "messages[0].content[1]"."""

    @property
    def size(self) -> InputSize:
        """The size as an input of an encoder. Models with other patches need more or fewer tokens."""
        return InputSize(media=ceil(self.width * self.height / PIXELS_PER_TOKEN))

    @property
    def without_data(self) -> Image:
        """A copy without the file."""
        return self.model_copy(update={"data": None})


class ImagePart(BaseModel):
    """An image in a message. The gateway creates it from an `image_url` part; clients cannot send it."""

    model_config = STRICT | ConfigDict(frozen=True)

    type: Literal["image"]
    image: Image
    """The image."""
    embedding: Tensor | None = None
    """The embeddings of an `EncoderTask`. If None, the language model encodes the image."""


class EncodedImage(BaseModel):
    """Metadata of the embeddings of an image, which have the shape [rows, hidden size of the language model]."""

    model_config = STRICT | ConfigDict(frozen=True)

    key: str
    """Identifies the contents: equal keys imply equal tensors. Derived from the image, the weights and the settings."""
    rows: Annotated[int, Ge(1)]
    """The number of embeddings. Each replaces one placeholder token of the prompt."""
    fields: dict[str, list[int]]
    """Further inputs of the language model, under vLLM's names. Example: `image_grid_thw` is [t, h, w] in patches."""
