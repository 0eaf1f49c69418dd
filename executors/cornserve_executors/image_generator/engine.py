"""Generates images with all components of a model on one device."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

from diffusers import QwenImagePipeline

from cornserve.concurrency import gather_all
from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.image_generator.components import (
    WARM_UP_REQUEST,
    BatchedDenoiser,
    TextEncoder,
    VaeDecoder,
    seeds,
)
from cornserve_executors.image_generator.denoiser import PromptEmbeddings, SourceLatents
from cornserve_executors.image_generator.pipeline import load_pipeline
from cornserve_executors.image_generator.progress import SendProgress, encode_previews
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.generated_image import GeneratedImage
from cornserve_tasklib.image_editing import ImageEditor
from cornserve_tasklib.image_generation import (
    ImageGenerationRequest,
    ImageGenerationResponse,
    ImageGenerator,
    ImageGeneratorOptions,
    ImageRequest,
)


class ImageGeneratorEngine:
    """Generates images. One thread runs all work of the device: prompts, steps and decoding take turns."""

    pipeline_class: ClassVar[Any] = QwenImagePipeline

    def __init__(
        self, pipeline: Any, options: ImageGeneratorOptions, stats: ImageGeneratorStats, device: DeviceThread
    ) -> None:
        """Changes the transformer of the pipeline.

        Args:
            pipeline: a `pipeline_class` on the device.
        """
        self._pipeline = pipeline
        self._stats = stats
        self._device = device
        self._encoder = TextEncoder(pipeline, device)
        self._denoiser = BatchedDenoiser(pipeline, device, options, stats)
        self._decoder = VaeDecoder(pipeline, device)

    @classmethod
    def load(cls, config: ImageGenerator | ImageEditor, stats: ImageGeneratorStats) -> Self:
        """Loads the model. Blocks, and can run in any thread."""
        device = DeviceThread()
        pipeline = load_pipeline(config, config.options.dtype, device.name, pipeline_class=cls.pipeline_class)
        return cls(pipeline, config.options, stats, device)

    async def run(self) -> None:
        """Denoises images until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._denoiser.run()

    async def warm_up(self) -> None:
        """Generates an image in few steps while `run` is running, so that torch completes its lazy initialization."""
        await self.generate(WARM_UP_REQUEST, "warm-up")

    async def generate(
        self, request: ImageGenerationRequest, request_id: str, send: SendProgress | None = None
    ) -> ImageGenerationResponse:
        """Generates all images of a request, and sends their progress to `send`.

        Raises `InvalidRequestError` for a request beyond the limits of the model or of the options.
        """
        self._denoiser.check(request)
        embeddings = await self._encoder.encode(request)
        return await self._generate_images(request, embeddings, None, request_id, send)

    async def _generate_images(
        self,
        request: ImageRequest,
        embeddings: PromptEmbeddings,
        source: SourceLatents | None,
        request_id: str,
        send: SendProgress | None,
    ) -> ImageGenerationResponse:
        if send is None:
            request = request.model_copy(update={"partial_images": 0})
        images = await gather_all(
            self._generate_image(request, embeddings, source, seed, number, request_id, send)
            for number, seed in enumerate(seeds(request))
        )
        usage = Usage(prompt_tokens=embeddings.prompt.shape[1], completion_tokens=request.n * request.image_tokens)
        return ImageGenerationResponse(images=images, size=request.size, usage=usage)

    def shutdown(self) -> None:
        """Blocks until the current work of the device is done."""
        self._device.shutdown()

    async def _generate_image(
        self,
        request: ImageRequest,
        embeddings: PromptEmbeddings,
        source: SourceLatents | None,
        seed: int,
        number: int,
        request_id: str,
        send: SendProgress | None,
    ) -> GeneratedImage:
        with self._stats.image():
            image = await self._denoiser.start(request, embeddings, seed, source)
            decode = partial(self._decoder.decode, request)
            send_step = None if send is None else encode_previews(send, decode)
            await self._denoiser.denoise(image, number, request_id, send_step)
            return GeneratedImage(b64_json=await decode(image.latents), seed=seed)
