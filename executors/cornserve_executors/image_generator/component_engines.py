"""Engines that run one component of an image generation model each."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import torch
from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel

from cornserve.concurrency import gather_all
from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.image_generator.components import (
    WARM_UP_REQUEST,
    BatchedDenoiser,
    TextEncoder,
    VaeDecoder,
)
from cornserve_executors.image_generator.defaults import guidance_of
from cornserve_executors.image_generator.denoiser import DenoisedImage, PromptEmbeddings, SourceLatents
from cornserve_executors.image_generator.pipeline import (
    check_prompt,
    load_config,
    load_pipeline,
    select_dtype,
    select_pipeline_class,
)
from cornserve_executors.image_generator.progress import SendStep
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.image_components import ComponentSettings, ImageDenoiser, LatentDecoder, PromptEncoder
from cornserve_tasklib.image_generation import ImageGenerationRequest, ImageRequest


class ComponentEngine:
    """Runs a component on one device."""

    def __init__(self) -> None:
        self.device = DeviceThread()

    async def run(self) -> None:
        """Runs until cancelled."""
        await asyncio.get_running_loop().create_future()

    def shutdown(self) -> None:
        """Blocks until the current work of the device is done."""
        self.device.shutdown()


class PromptEncoderEngine(ComponentEngine):
    def __init__(self, config: PromptEncoder) -> None:
        """Loads the text encoder. Blocks."""
        super().__init__()
        components = ("text_encoder", "tokenizer")
        self._encoder = TextEncoder(load_pipeline(config, config.dtype, self.device.name, components), self.device)

    async def warm_up(self) -> None:
        await self.encode(WARM_UP_REQUEST)

    async def encode(self, request: ImageGenerationRequest) -> PromptEmbeddings:
        """Raises `InvalidRequestError` for a prompt that is too long."""
        return await self._encoder.encode(request)


class ImageDenoiserEngine(ComponentEngine):
    def __init__(self, config: ImageDenoiser, stats: ImageGeneratorStats) -> None:
        """Loads the denoiser. Blocks."""
        super().__init__()
        pipeline = load_pipeline(
            config,
            config.options.dtype,
            self.device.name,
            ("transformer", "scheduler"),
            pipeline_class=select_pipeline_class(config),
        )
        self._denoiser = BatchedDenoiser(pipeline, self.device, config.options, stats)
        self._width = pipeline.transformer.config.joint_attention_dim
        self._dtype = pipeline.transformer.dtype
        self._stats = stats

    async def run(self) -> None:
        """Denoises images until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._denoiser.run()

    async def warm_up(self) -> None:
        rows = torch.zeros(1, 1, self._width, dtype=self._dtype, device=self.device.name)
        await self.denoise(WARM_UP_REQUEST, PromptEmbeddings(rows, rows), [0], "warm-up", None)

    def check(self, request: ImageRequest) -> None:
        """Raises `InvalidRequestError` for a request beyond the limits of the options."""
        self._denoiser.check(request)

    async def denoise(
        self,
        request: ImageRequest,
        embeddings: PromptEmbeddings,
        image_seeds: list[int],
        request_id: str,
        send: SendStep | None,
        source: SourceLatents | None = None,
    ) -> torch.Tensor:
        """Returns the latents of all images, of the shape [images, tokens, channels].

        The inputs may have another dtype: those of a constant encoder on a CPU, for a denoiser on a GPU.
        """
        embeddings = embeddings.to(self._dtype)
        source = None if source is None else source.to(self._dtype)

        async def denoise(number: int, seed: int) -> DenoisedImage:
            with self._stats.image():
                image = await self._denoiser.start(request, embeddings, seed, source)
                await self._denoiser.denoise(image, number, request_id, send)
            return image

        images = await gather_all(denoise(number, seed) for number, seed in enumerate(image_seeds))
        return await self.device.run(partial(torch.cat, [image.latents for image in images]))


class ZeroPrompts:
    """Makes zeros with the shape of encoded prompts.

    Args:
        pipeline: has a tokenizer.
    """

    def __init__(self, config: ComponentSettings, pipeline: Any, device: str) -> None:
        self._pipeline = pipeline
        self._dtype = select_dtype(config.dtype, device)
        self._width: int = load_config(config, QwenImageTransformer2DModel, "transformer")["joint_attention_dim"]

    def encode(self, request: ImageRequest, further_rows: int = 0) -> PromptEmbeddings:
        """Raises `InvalidRequestError` for a prompt that is too long.

        Args:
            further_rows: rows in addition to those of the tokens.
        """

        def rows(name: str, prompt: str) -> torch.Tensor:
            count = check_prompt(self._pipeline, name, prompt) + further_rows
            return torch.zeros(1, count, self._width, dtype=self._dtype)

        negative = rows("negative_prompt", request.negative_prompt) if guidance_of(request) > 1 else None
        return PromptEmbeddings(rows("prompt", request.prompt), negative)


class ConstantPromptEngine(ComponentEngine):
    """Returns zeros with the shape of encoded prompts."""

    def __init__(self, config: PromptEncoder) -> None:
        """Loads the tokenizer. Blocks."""
        super().__init__()
        pipeline = load_pipeline(config, config.dtype, self.device.name, ("tokenizer",))
        self._prompts = ZeroPrompts(config, pipeline, self.device.name)

    async def warm_up(self) -> None:
        await self.encode(WARM_UP_REQUEST)

    async def encode(self, request: ImageGenerationRequest) -> PromptEmbeddings:
        """Raises `InvalidRequestError` for a prompt that is too long."""
        return self._prompts.encode(request)


class ConstantLatentsEngine(ComponentEngine):
    """Returns zeros with the shape of latents."""

    def __init__(self, config: ImageDenoiser) -> None:
        """Reads the configuration of the VAE. Blocks."""
        super().__init__()
        self._dtype = select_dtype(config.options.dtype, self.device.name)
        self._channels: int = 4 * load_config(config, AutoencoderKLQwenImage, "vae")["z_dim"]

    async def warm_up(self) -> None:
        """Does nothing."""

    def check(self, request: ImageRequest) -> None:
        """Accepts all requests."""

    async def denoise(
        self,
        request: ImageRequest,
        embeddings: PromptEmbeddings,
        image_seeds: list[int],
        request_id: str,
        send: SendStep | None,
        source: SourceLatents | None = None,
    ) -> torch.Tensor:
        """Returns the latents of all images, of the shape [images, tokens, channels]."""
        return torch.zeros(len(image_seeds), request.image_tokens, self._channels, dtype=self._dtype)


class LatentDecoderEngine(ComponentEngine):
    def __init__(self, config: LatentDecoder) -> None:
        """Loads the VAE. Blocks."""
        super().__init__()
        pipeline_class = select_pipeline_class(config)
        pipeline = load_pipeline(config, config.dtype, self.device.name, ("vae",), pipeline_class=pipeline_class)
        self._decoder = VaeDecoder(pipeline, self.device)
        self._channels = 4 * pipeline.vae.config.z_dim
        self._dtype = pipeline.vae.dtype

    async def warm_up(self) -> None:
        shape = (1, WARM_UP_REQUEST.image_tokens, self._channels)
        await self.decode(WARM_UP_REQUEST, torch.zeros(shape, dtype=self._dtype, device=self.device.name))

    async def decode(self, request: ImageRequest, latents: torch.Tensor) -> list[str]:
        """Returns the file of each image in base64."""
        return [await self._decoder.decode(request, image) for image in latents.split(1)]
