"""Generates images with whole diffusers pipelines. The steps of all images take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import torch

from cornserve.concurrency import gather_all
from cornserve_executors.device_thread import DeviceThread, run_on_device
from cornserve_executors.image_generator.components import WARM_UP_REQUEST, check_limits, seeds
from cornserve_executors.image_generator.denoiser import preview_steps
from cornserve_executors.image_generator.image_files import encode_image
from cornserve_executors.image_generator.pipeline_call import PipelineCall
from cornserve_executors.image_generator.pipeline_family import PipelineFamily
from cornserve_executors.image_generator.progress import SendProgress, encode_previews, run_image_steps
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_executors.step_batcher import StepBatcher
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.generated_image import GeneratedImage
from cornserve_tasklib.image_generation import (
    ImageGenerationRequest,
    ImageGenerationResponse,
    ImageGenerator,
    ImageGeneratorOptions,
)


class PipelineEngine:
    """Calls a pipeline for each image. One thread at a time uses the device."""

    def __init__(
        self, family: PipelineFamily, options: ImageGeneratorOptions, stats: ImageGeneratorStats, device: DeviceThread
    ) -> None:
        """Keeps a family, whose pipeline is on the device."""
        self._family = family
        self._options = options
        self._stats = stats
        self._device = device
        self._batcher = StepBatcher(_advance, device.thread, options.max_batch_images, stats)

    @classmethod
    def load(cls, config: ImageGenerator, stats: ImageGeneratorStats, family: type[PipelineFamily]) -> Self:
        """Loads the model. Blocks, and can run in any thread."""
        device = DeviceThread()
        return cls(family.load(config, device.name), config.options, stats, device)

    async def run(self) -> None:
        """Denoises images until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._batcher.run()

    async def warm_up(self) -> None:
        """Generates an image in few steps while `run` is running, so that torch completes its lazy initialization."""
        await self.generate(WARM_UP_REQUEST, "warm-up")

    async def generate(
        self, request: ImageGenerationRequest, request_id: str, send: SendProgress | None = None
    ) -> ImageGenerationResponse:
        """Generates all images of a request, and sends their progress to `send`.

        Raises `InvalidRequestError` for a request beyond the limits of the model or of the options.
        """
        check_limits(request, self._family.steps(request), self._options)
        # On the device thread: a tokenizer that counts tokens cannot be used by a call at the same time.
        tokens = await self._device.run(partial(self._family.check, request))
        images = await gather_all(
            self._generate_image(request, seed, number, request_id, send) for number, seed in enumerate(seeds(request))
        )
        usage = Usage(prompt_tokens=tokens, completion_tokens=request.n * request.image_tokens)
        return ImageGenerationResponse(images=images, size=request.size, usage=usage)

    def shutdown(self) -> None:
        """Blocks until the current work of the device is done."""
        self._device.shutdown()

    async def _generate_image(
        self, request: ImageGenerationRequest, seed: int, number: int, request_id: str, send: SendProgress | None
    ) -> GeneratedImage:
        scheduler, steps = self._family.new_scheduler(), self._family.steps(request)
        call = PipelineCall(
            partial(self._family.call, request, seed, scheduler),
            scheduler,
            steps,
            frozenset() if send is None else preview_steps(steps, request.partial_images),
        )
        with self._stats.image():
            try:
                run_steps = partial(self._run_steps, call, request_id)
                send_step = None if send is None else encode_previews(send, partial(self._preview, request))
                await run_image_steps(run_steps, call, number, send_step)
                image = await self._device.run(call.finish)
            finally:
                call.close()
            return GeneratedImage(b64_json=await asyncio.to_thread(encode_image, image, request), seed=seed)

    async def _run_steps(self, call: PipelineCall, request_id: str, on_step: Callable[[], None]) -> None:
        """See `StepBatcher.run_steps`. Raises the exception of the pipeline if a step fails."""
        await self._batcher.run_steps(call, request_id, on_step)
        await self._device.run(call.check)

    async def _preview(self, request: ImageGenerationRequest, latents: torch.Tensor) -> str:
        """Returns the image file of latents, in base64."""
        image = await self._device.run(partial(self._family.decode, request, latents))
        return await asyncio.to_thread(encode_image, image, request)


def _advance(calls: Sequence[PipelineCall]) -> None:
    """Runs the next step of each call, one after another."""
    for call in calls:
        run_on_device(call.advance)
