"""Prepares the images that are edited, and encodes them for the components of a `QwenImageEditPipeline`."""

from __future__ import annotations

from functools import partial
from typing import Any

import PIL.Image
import torch
from diffusers import QwenImageEditPipeline
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit import calculate_dimensions

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.image_generator.defaults import MIN_STEPS, guidance_of
from cornserve_executors.image_generator.denoiser import PromptEmbeddings, SourceLatents
from cornserve_executors.image_generator.pipeline import check_prompt
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.grey_image import GREY_IMAGE
from cornserve_executors.media.image_decoding import ImageSize, decode_image
from cornserve_tasklib.image_editing import SOURCE_PIXELS, ImageEditRequest
from cornserve_tasklib.image_generation import MAX_SIDE, TOKEN_PIXELS
from cornserve_tasklib.media import Image

WARM_UP_EDIT = ImageEditRequest(prompt="corn", image=GREY_IMAGE, size="64x64", num_inference_steps=MIN_STEPS, seed=0)


class SourceImages:
    """Decodes and scales images in further processes or threads.

    Args:
        image_processor: the one of the pipeline.
    """

    def __init__(self, image_processor: Any) -> None:
        self._image_processor = image_processor
        self._decode_pools = DecodePools()

    async def scaled(self, image: Image, request_id: str) -> PIL.Image.Image:
        """Returns the image in the size in which the model reads it.

        Raises `InvalidRequestError` for an image that cannot be used.
        """
        pixels = image.width * image.height
        async with self._decode_pools.pool_for(pixels).acquire(pixels, request_id) as pool:
            return await pool.run(partial(self._decode, image))

    def shutdown(self) -> None:
        self._decode_pools.shutdown()

    def _decode(self, image: Image) -> PIL.Image.Image:
        with decode_image(image) as decoded:
            size = scaled_size(ImageSize(*decoded.size))
            scaled: PIL.Image.Image = self._image_processor.resize(decoded.convert("RGB"), size.height, size.width)
            return scaled


def scaled_size(size: ImageSize) -> ImageSize:
    """Returns the size in which the model reads an image of this size.

    Raises `InvalidRequestError` for an image that is too long and narrow.
    """
    width, height, _ = calculate_dimensions(SOURCE_PIXELS, size.width / size.height)
    if not TOKEN_PIXELS <= min(width, height) <= max(width, height) <= MAX_SIDE:
        raise InvalidRequestError(f"image: {size.width}×{size.height} pixels are too long and narrow: crop the image")
    return ImageSize(width, height)


def encode_edit_prompts(
    pipeline: QwenImageEditPipeline, request: ImageEditRequest, source: PIL.Image.Image
) -> PromptEmbeddings:
    """Blocks. Raises `InvalidRequestError` for a prompt that is too long."""
    is_guided = guidance_of(request) > 1
    return PromptEmbeddings(
        prompt=_encode_prompt(pipeline, "prompt", request.prompt, source),
        negative=_encode_prompt(pipeline, "negative_prompt", request.negative_prompt, source) if is_guided else None,
    )


def encode_source(
    pipeline: QwenImageEditPipeline, source: PIL.Image.Image, dtype: torch.dtype, device: str
) -> SourceLatents:
    """Encodes the image with the VAE. Blocks."""
    pixels = pipeline.image_processor.preprocess(source, source.height, source.width).unsqueeze(2)
    no_noise = torch.empty(0)
    _, latents = pipeline.prepare_latents(
        pixels, 1, pipeline.latent_channels, source.height, source.width, dtype, device, None, no_noise
    )
    return source_latents(latents, source.width, source.height)


def source_latents(latents: torch.Tensor, width: int, height: int) -> SourceLatents:
    """Returns the latents of an image of this size in pixels."""
    return SourceLatents(latents, (1, height // TOKEN_PIXELS, width // TOKEN_PIXELS))


def _encode_prompt(pipeline: QwenImageEditPipeline, name: str, prompt: str, source: PIL.Image.Image) -> torch.Tensor:
    check_prompt(pipeline, name, prompt)
    rows: torch.Tensor
    rows, _ = pipeline.encode_prompt(prompt, image=source)
    return rows
