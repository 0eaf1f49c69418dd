"""The components of an image generation model, which run on one device."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import torch
from diffusers import QwenImagePipeline

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.device_thread import DeviceThread, run_on_device
from cornserve_executors.image_generator.defaults import DEFAULT_STEPS, MIN_STEPS
from cornserve_executors.image_generator.denoiser import DenoisedImage, Denoiser, PromptEmbeddings, SourceLatents
from cornserve_executors.image_generator.image_files import encode_image
from cornserve_executors.image_generator.pipeline import decode_latents, encode_prompts
from cornserve_executors.image_generator.progress import SendStep, run_image_steps
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_executors.step_batcher import StepBatcher
from cornserve_tasklib.image_generation import ImageGenerationRequest, ImageGeneratorOptions, ImageRequest
from cornserve_tasklib.seeds import seed_or_random

WARM_UP_REQUEST = ImageGenerationRequest(prompt="corn", size="64x64", num_inference_steps=MIN_STEPS, seed=0)


class TextEncoder:
    """Encodes prompts."""

    def __init__(self, pipeline: QwenImagePipeline, device: DeviceThread) -> None:
        self._pipeline = pipeline
        self._device = device

    async def encode(self, request: ImageRequest) -> PromptEmbeddings:
        """Raises `InvalidRequestError` for a prompt that is too long."""
        return await self._device.run(partial(encode_prompts, self._pipeline, request))


class BatchedDenoiser:
    """Denoises the images of all requests in batches."""

    def __init__(
        self,
        pipeline: QwenImagePipeline,
        device: DeviceThread,
        options: ImageGeneratorOptions,
        stats: ImageGeneratorStats,
    ) -> None:
        self._device = device
        self._options = options
        self._denoiser = Denoiser(pipeline, device.name, options.max_steps, row_by_row=device.name == "cpu")
        self._batcher = StepBatcher(self._run_step, device.thread, options.max_batch_images, stats)

    async def run(self) -> None:
        """Denoises images until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._batcher.run()

    def check(self, request: ImageRequest) -> None:
        """Raises `InvalidRequestError` for a request beyond the limits of the model or of the options."""
        if request.guidance_scale is not None:
            raise InvalidRequestError("guidance_scale: this model is not guidance-distilled: use true_cfg_scale")
        steps = request.steps(DEFAULT_STEPS, self._options.max_steps)
        if steps < MIN_STEPS:
            raise InvalidRequestError(f"num_inference_steps: must be at least {MIN_STEPS} for this model")
        check_limits(request, steps, self._options)

    async def start(
        self,
        request: ImageRequest,
        embeddings: PromptEmbeddings,
        seed: int,
        source: SourceLatents | None = None,
    ) -> DenoisedImage:
        """Returns an image of noise.

        Args:
            source: the image to edit.
        """
        return await self._device.run(partial(self._denoiser.start, request, embeddings, seed, source))

    async def denoise(
        self,
        image: DenoisedImage,
        number: int,
        request_id: str,
        send: SendStep | None,
    ) -> None:
        """Runs all steps of an image, and sends its progress.

        Args:
            number: the position of the image in the response.
        """
        run_steps = partial(self._batcher.run_steps, image, request_id)
        await run_image_steps(run_steps, image, number, send)

    def _run_step(self, images: Sequence[DenoisedImage]) -> None:
        run_on_device(partial(self._denoiser.run_step, images))


class VaeDecoder:
    """Decodes latents to image files."""

    def __init__(self, pipeline: QwenImagePipeline, device: DeviceThread) -> None:
        self._pipeline = pipeline
        self._device = device

    async def decode(self, request: ImageRequest, latents: torch.Tensor) -> str:
        """Returns the file in base64, for latents of the shape [1, tokens, channels]."""
        decode = partial(decode_latents, self._pipeline, latents, request.width, request.height)
        return await asyncio.to_thread(encode_image, await self._device.run(decode), request)


def seeds(request: ImageRequest) -> list[int]:
    """Returns the seed of each image."""
    first = seed_or_random(request.seed)
    return list(range(first, first + request.n))


def check_limits(request: ImageRequest, steps: int, options: ImageGeneratorOptions) -> None:
    """Raises `InvalidRequestError` for a request beyond the limits of the options."""
    if request.n > options.max_images:
        raise InvalidRequestError(f"n: must be at most {options.max_images} for this app (max_images), not {request.n}")
    pixels = request.width * request.height
    if pixels > options.max_pixels:
        raise InvalidRequestError(
            f"size: {request.size} has {pixels} pixels: this app allows at most {options.max_pixels} (max_pixels)"
        )
    if steps > options.max_steps:
        raise InvalidRequestError(
            f"num_inference_steps: must be at most {options.max_steps} for this app (max_steps), not {steps}"
        )
