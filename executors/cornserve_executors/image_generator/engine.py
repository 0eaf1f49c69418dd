"""Generates images: encodes the prompts, denoises latents in batches, and decodes them."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

from cornserve.concurrency import gather_all
from cornserve_executors.base import EngineDeadError, InvalidRequestError, OverloadedError
from cornserve_executors.image_generator.denoiser import DenoisedImage, Denoiser, PromptEmbeddings
from cornserve_executors.image_generator.image_files import encode_image
from cornserve_executors.image_generator.pipeline import decode_latents, encode_prompts, load_pipeline
from cornserve_executors.image_generator.progress import ProgressReporter, SendProgress
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_executors.step_batcher import StepBatcher
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.image_generation import (
    MIN_STEPS,
    GeneratedImage,
    ImageGenerationRequest,
    ImageGenerationResponse,
    ImageGenerator,
)

Result = TypeVar("Result")

SEED_BITS = 32
"""The size of random seeds."""


class ImageGeneratorEngine:
    """Generates images. One thread runs all work of the device: prompts, steps and decoding take turns."""

    def __init__(self, config: ImageGenerator, stats: ImageGeneratorStats) -> None:
        """Loads the model. Blocks, and can run in any thread."""
        self._options = config.options
        self._stats = stats
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._pipeline = load_pipeline(config, device)
        self._denoiser = Denoiser(self._pipeline, device, row_by_row=device == "cpu")
        # Image files are encoded in parallel. On a CPU, the device leaves one core for that.
        threads = min(torch.get_num_threads(), max(1, len(os.sched_getaffinity(0)) - 1))
        self._device_thread = ThreadPoolExecutor(1, "device", torch.set_num_threads, (threads,))
        self._batcher = StepBatcher(self._run_step, self._device_thread, self._options.max_batch_images, stats)

    async def run(self) -> None:
        """Denoises images until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._batcher.run()

    def warm_up(self) -> None:
        """Generates an image in few steps, so that torch completes its lazy initialization. Blocks."""
        request = ImageGenerationRequest(prompt="corn", size="64x64", num_inference_steps=MIN_STEPS)

        def generate() -> None:
            image = self._denoiser.start(request, encode_prompts(self._pipeline, request), 0)
            while not image.is_done:
                self._denoiser.run_step([image])
            decode_latents(self._pipeline, image.latents, request.width, request.height)

        self._device_thread.submit(partial(_run_on_device, generate)).result()

    async def generate(
        self, request: ImageGenerationRequest, request_id: str, send: SendProgress | None = None
    ) -> ImageGenerationResponse:
        """Generates all images of a request, and sends their progress to `send`.

        Raises `InvalidRequestError` for a request beyond the limits of the model or of the options.
        """
        self._check(request)
        embeddings = await self._run(partial(encode_prompts, self._pipeline, request))
        first = secrets.randbits(SEED_BITS) if request.seed is None else request.seed
        with_previews = request if send is not None else request.model_copy(update={"partial_images": 0})
        images = await gather_all(
            self._generate_image(with_previews, embeddings, first, number, request_id, send)
            for number in range(request.n)
        )
        usage = Usage(prompt_tokens=embeddings.prompt.shape[1], completion_tokens=request.n * request.image_tokens)
        return ImageGenerationResponse(images=images, usage=usage)

    def shutdown(self) -> None:
        """Blocks until the current work of the device is done."""
        self._device_thread.shutdown(cancel_futures=True)

    def _check(self, request: ImageGenerationRequest) -> None:
        options, pixels = self._options, request.width * request.height
        if pixels > options.max_pixels:
            raise InvalidRequestError(
                f"size: {request.size} has {pixels} pixels: this app allows at most {options.max_pixels} (max_pixels)"
            )
        if request.num_inference_steps > options.max_steps:
            raise InvalidRequestError(
                f"num_inference_steps: must be at most {options.max_steps} for this app (max_steps), "
                f"not {request.num_inference_steps}"
            )

    async def _generate_image(
        self,
        request: ImageGenerationRequest,
        embeddings: PromptEmbeddings,
        first_seed: int,
        number: int,
        request_id: str,
        send: SendProgress | None,
    ) -> GeneratedImage:
        seed = first_seed + number
        with self._stats.image():
            image = await self._run(partial(self._denoiser.start, request, embeddings, seed))
            encode = partial(self._encode_file, request)
            if send is None:
                await self._batcher.run_steps(image, request_id, _ignore_step)
            else:
                progress = ProgressReporter(image, number, encode, send)
                await gather_all([self._batcher.run_steps(image, request_id, progress.add_step), progress.run()])
            return GeneratedImage(b64_json=await encode(image.latents), seed=seed)

    async def _encode_file(self, request: ImageGenerationRequest, latents: torch.Tensor) -> str:
        image = await self._run(partial(decode_latents, self._pipeline, latents, request.width, request.height))
        return await asyncio.to_thread(encode_image, image, request)

    async def _run(self, work: Callable[[], Result]) -> Result:
        """Runs work in the device thread."""
        return await asyncio.get_running_loop().run_in_executor(self._device_thread, _run_on_device, work)

    def _run_step(self, images: Sequence[DenoisedImage]) -> None:
        _run_on_device(partial(self._denoiser.run_step, images))


def _ignore_step() -> None:
    """Ignores a step of an image whose caller does not read the progress."""


def _run_on_device(work: Callable[[], Result]) -> Result:
    try:
        with torch.inference_mode():
            result = work()
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
    except torch.OutOfMemoryError as error:
        raise OverloadedError(f"the images do not fit into the GPU's memory: {error}") from error
    except torch.AcceleratorError as error:
        raise EngineDeadError(str(error).splitlines()[0]) from error
    return result
