"""Edits images with all components of a model on one device."""

from __future__ import annotations

from functools import partial
from typing import Any

import PIL.Image
from diffusers import QwenImageEditPipeline

from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.image_generator.denoiser import PromptEmbeddings, SourceLatents
from cornserve_executors.image_generator.editing import (
    WARM_UP_EDIT,
    SourceImages,
    encode_edit_prompts,
    encode_source,
)
from cornserve_executors.image_generator.engine import ImageGeneratorEngine
from cornserve_executors.image_generator.progress import SendProgress
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.image_editing import AUTO, ImageEditRequest
from cornserve_tasklib.image_generation import ImageGenerationResponse, ImageGeneratorOptions


class ImageEditorEngine(ImageGeneratorEngine):
    """Edits images. The text encoder reads the prompt and the image, and the denoiser the latents of the image."""

    pipeline_class = QwenImageEditPipeline

    def __init__(
        self, pipeline: Any, options: ImageGeneratorOptions, stats: ImageGeneratorStats, device: DeviceThread
    ) -> None:
        super().__init__(pipeline, options, stats, device)
        self._sources = SourceImages(pipeline.image_processor)

    async def warm_up(self) -> None:
        await self.edit(WARM_UP_EDIT, "warm-up")

    async def edit(
        self, request: ImageEditRequest, request_id: str, send: SendProgress | None = None
    ) -> ImageGenerationResponse:
        """Generates all results of a request, and sends their progress to `send`.

        Raises `InvalidRequestError` for an image that cannot be used, and for a request beyond the limits of the model
        or of the options.
        """
        source = await self._sources.scaled(request.image, request_id)
        if request.size == AUTO:
            request = request.model_copy(update={"size": f"{source.width}x{source.height}"})
        self._denoiser.check(request)
        embeddings, latents = await self._device.run(partial(self._encode, request, source))
        return await self._generate_images(request, embeddings, latents, request_id, send)

    def shutdown(self) -> None:
        super().shutdown()
        self._sources.shutdown()

    def _encode(self, request: ImageEditRequest, source: PIL.Image.Image) -> tuple[PromptEmbeddings, SourceLatents]:
        embeddings = encode_edit_prompts(self._pipeline, request, source)
        return embeddings, encode_source(self._pipeline, source, embeddings.prompt.dtype, self._device.name)
