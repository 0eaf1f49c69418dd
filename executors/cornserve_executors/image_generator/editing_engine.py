"""Edits images with all components of a model on one device."""

from __future__ import annotations

from functools import partial

import PIL.Image
import torch
from diffusers import QwenImageEditPipeline
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit import calculate_dimensions

from cornserve.task import Blob
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.image_generator.defaults import guidance_of
from cornserve_executors.image_generator.denoiser import PromptEmbeddings, SourceLatents
from cornserve_executors.image_generator.engine import ImageGeneratorEngine
from cornserve_executors.image_generator.pipeline import check_prompt
from cornserve_executors.image_generator.progress import SendProgress
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.image_decoding import decode_image
from cornserve_tasklib.image_editing import SOURCE_PIXELS, ImageEditor, ImageEditRequest
from cornserve_tasklib.image_generation import MAX_SIDE, MIN_STEPS, TOKEN_PIXELS, ImageGenerationResponse
from cornserve_tasklib.media import Image

SMALL_PIXELS = 4_000_000
"""Images with at most this decoded size do not wait for larger ones."""

WARM_UP_REQUEST = ImageEditRequest(
    prompt="corn",
    image=Image(
        data=Blob(b"P5 64 64 255\n" + bytes([128]) * 64 * 64),
        format="PPM",
        width=64,
        height=64,
        digest="grey",
        where="warm-up",
    ),
    size="64x64",
    num_inference_steps=MIN_STEPS,
    seed=0,
)


class ImageEditorEngine(ImageGeneratorEngine):
    """Edits images. The text encoder reads the prompt and the image, and the denoiser the latents of the image."""

    pipeline_class = QwenImageEditPipeline

    def __init__(self, config: ImageEditor, stats: ImageGeneratorStats) -> None:
        """Loads the model. Blocks, and can run in any thread."""
        super().__init__(config, stats)
        self._decode_pools = DecodePools(SMALL_PIXELS)

    async def warm_up(self) -> None:
        await self.edit(WARM_UP_REQUEST, "warm-up")

    async def edit(
        self, request: ImageEditRequest, request_id: str, send: SendProgress | None = None
    ) -> ImageGenerationResponse:
        """Generates all results of a request, and sends their progress to `send`.

        Raises `InvalidRequestError` for an image that cannot be used, and for a request beyond the limits of the model
        or of the options.
        """
        source = await self._scaled(request.image, request_id)
        if request.size == "auto":
            request = request.model_copy(update={"size": _size_of(source)})
        self._denoiser.check(request)
        embeddings, latents = await self._device.run(partial(self._encode, request, source))
        return await self._generate_images(request, embeddings, latents, request_id, send)

    def shutdown(self) -> None:
        super().shutdown()
        self._decode_pools.shutdown()

    async def _scaled(self, image: Image, request_id: str) -> PIL.Image.Image:
        """Returns the image in the size in which the model reads it."""
        pixels = image.width * image.height
        async with self._decode_pools.pool_for(pixels).reserve(pixels, request_id) as pool:
            return await pool.run(partial(self._decode, image))

    def _decode(self, image: Image) -> PIL.Image.Image:
        with decode_image(image) as decoded:
            width, height, _ = calculate_dimensions(SOURCE_PIXELS, decoded.width / decoded.height)
            if not TOKEN_PIXELS <= min(width, height) <= max(width, height) <= MAX_SIDE:
                raise InvalidRequestError(
                    f"image: {decoded.width}×{decoded.height} pixels are too long and narrow: crop the image"
                )
            scaled: PIL.Image.Image = self._pipeline.image_processor.resize(decoded.convert("RGB"), height, width)
            return scaled

    def _encode(self, request: ImageEditRequest, source: PIL.Image.Image) -> tuple[PromptEmbeddings, SourceLatents]:
        embeddings = PromptEmbeddings(
            prompt=self._encode_prompt("prompt", request.prompt, source),
            negative=self._encode_prompt("negative_prompt", request.negative_prompt, source)
            if guidance_of(request) > 1
            else None,
        )
        return embeddings, self._encode_source(source, embeddings.prompt.dtype)

    def _encode_prompt(self, name: str, prompt: str, source: PIL.Image.Image) -> torch.Tensor:
        check_prompt(self._pipeline, name, prompt)
        rows: torch.Tensor
        rows, _ = self._pipeline.encode_prompt(prompt, image=source)
        return rows

    def _encode_source(self, source: PIL.Image.Image, dtype: torch.dtype) -> SourceLatents:
        pipeline = self._pipeline
        pixels = pipeline.image_processor.preprocess(source, source.height, source.width).unsqueeze(2)
        no_noise = torch.empty(0)
        _, latents = pipeline.prepare_latents(
            pixels, 1, pipeline.latent_channels, source.height, source.width, dtype, self._device.name, None, no_noise
        )
        return SourceLatents(latents, (1, source.height // TOKEN_PIXELS, source.width // TOKEN_PIXELS))


def _size_of(image: PIL.Image.Image) -> str:
    return f"{image.width}x{image.height}"
