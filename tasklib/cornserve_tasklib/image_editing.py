"""Image editing: models that change an image by a text."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from annotated_types import MaxLen
from pydantic import AfterValidator

from cornserve.task import UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.image_generation import (
    TOKEN_PIXELS,
    ImageGenerationResponse,
    ImageGeneratorOptions,
    ImageRequest,
    check_size,
    image_generation_size,
)
from cornserve_tasklib.media import Image
from cornserve_tasklib.model_settings import ModelSettings

SOURCE_PIXELS = 1024 * 1024
"""The size to which the model scales the image that it edits. It keeps the ratio of the sides."""


AUTO = "auto"
"""The size of results that follow the image that they are edits of."""


def _check_size(size: str) -> str:
    return size if size == AUTO else check_size(size)


EditSize = Annotated[str, MaxLen(9), AfterValidator(_check_size)]
"""Width and height in pixels, or "auto"."""


class AutoSizedRequest(ImageRequest):
    """A request whose size can depend on an image."""

    size: EditSize = AUTO
    """Width and height of the results in pixels, multiples of 16. By default, about `SOURCE_PIXELS` in the ratio of the
    image's sides."""

    @property
    def image_tokens(self) -> int:
        """The number of tokens of one result in the denoiser."""
        return SOURCE_PIXELS // TOKEN_PIXELS**2 if self.size == AUTO else super().image_tokens


class ImageEditRequest(AutoSizedRequest):
    """An image, and a text that describes its change."""

    image: Image
    """The image to change."""


def image_editing_size(request: ImageEditRequest) -> InputSize:
    return replace(image_generation_size(request), media=SOURCE_PIXELS // TOKEN_PIXELS**2)


class ImageEditor(ModelSettings, UnitTask[ImageEditRequest, ImageGenerationResponse]):
    """Runs a diffusion model of diffusers that edits images, Qwen-Image-Edit, in one executor.

    The denoising steps of all requests are batched together.
    """

    executor = "image_editor"

    options: ImageGeneratorOptions = ImageGeneratorOptions()
    """Options of the executor."""

    @property
    def replica_gpus(self) -> int:
        return self.options.gpus

    def components(self, request: ImageEditRequest) -> frozenset[str]:
        return frozenset({"text_encoder", "vae_encoder", "denoiser", "vae"})

    def continues(self, request: ImageEditRequest) -> bool:
        return True

    def size(self, request: ImageEditRequest) -> InputSize:
        return image_editing_size(request)
