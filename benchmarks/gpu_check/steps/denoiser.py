"""Denoising steps of Qwen-Image and FLUX.1, compared with diffusers' own pipelines, one image after another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from statistics import mean
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
)
from diffusers.utils import logging
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.differences import relative_difference
from benchmarks.gpu_check.random_weights import build_random
from benchmarks.harness.running import running
from cornserve.concurrency import gather_all
from cornserve_demo.tokenizer import make_tokenizer
from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.image_generator.components import BatchedDenoiser
from cornserve_executors.image_generator.denoiser import Denoiser, PromptEmbeddings
from cornserve_executors.image_generator.pipeline_engine import PipelineEngine
from cornserve_executors.image_generator.pipeline_family import Flux
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.image_generation import ImageGenerationRequest, ImageGeneratorOptions, ImageProgress

PROMPT_TOKENS = (64, 9)
"""The lengths of the prompt and of the negative prompt."""

CONCURRENCY = (1, 2, 4, 8)
PRECISE_LAYERS = 2
PRECISE = f"Qwen-Image: {PRECISE_LAYERS} layers in float32"
SEED = 5


@dataclass(frozen=True, slots=True)
class _ImageSizes:
    steps: int
    equal: str
    mixed: Sequence[str]


FULL = _ImageSizes(3, "1024x1024", ("1024x1024", "512x512", "1328x1328", "768x1024"))
TINY = _ImageSizes(3, "64x64", ("64x64", "32x32", "96x96", "48x64"))


@dataclass(slots=True)
class _Reference:
    """An image of one size. Its latents are compared with those in batches."""

    diffusers_seconds: float
    diffusers: torch.Tensor
    """The latents of diffusers' pipeline."""
    alone: torch.Tensor
    """The latents of the denoiser without other images."""


async def run(check: Check) -> None:
    sizes = TINY if check.is_tiny else FULL
    logging.set_verbosity_error()
    check.reset_peak_memory()
    await _QwenImage(check, sizes).run()
    check.free_memory()
    if check.report.can_start(PRECISE, 5):
        await _QwenImage(check, sizes, torch.float32, PRECISE_LAYERS).run_precise()
    check.free_memory()
    check.reset_peak_memory()
    await _Flux(check, sizes).run()


class _QwenImage:
    """The denoiser of Qwen-Image, with random embeddings of prompts.

    Args:
        dtype: the type of the weights. By default, that of the check.
        layers: the number of layers. By default, that of the model.
    """

    def __init__(
        self, check: Check, sizes: _ImageSizes, dtype: torch.dtype | None = None, layers: int | None = None
    ) -> None:
        self._check = check
        self._sizes = sizes
        self._dtype = dtype or check.dtype
        config = check.config("qwen-image")
        dimensions = config["transformer"] | ({} if layers is None else {"num_layers": layers})
        started = time.perf_counter()
        transformer = build_random(lambda: QwenImageTransformer2DModel(**dimensions), check.device, self._dtype)
        self._pipeline = QwenImagePipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(**config["scheduler"]),
            vae=None,
            text_encoder=None,
            tokenizer=None,
            transformer=transformer,
        )
        self._pipeline.set_progress_bar_config(disable=True)
        self._parameters = sum(parameter.numel() for parameter in transformer.parameters())
        width = dimensions["joint_attention_dim"]
        self._embeddings = PromptEmbeddings(*(self._random(1, tokens, width) for tokens in PROMPT_TOKENS))
        self._made_seconds = time.perf_counter() - started

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(SEED)).to(self._check.device, self._dtype)

    async def run(self) -> None:
        self._check.report.add(
            "Qwen-Image: made",
            parameters_in_billions=self._parameters / 1e9,
            seconds=self._made_seconds,
            peak_gib=self._check.peak_gib,
        )
        sizes = [self._sizes.equal, *self._sizes.mixed]
        device = DeviceThread()
        # First, because the denoiser changes the transformer.
        references = {size: await self._timed_pipeline(device, size) for size in dict.fromkeys(sizes)}
        options = ImageGeneratorOptions(max_batch_images=max(CONCURRENCY))
        denoiser = BatchedDenoiser(self._pipeline, device, options, ImageGeneratorStats())
        try:
            async with running(denoiser):
                for size, reference in references.items():
                    (reference.alone,) = await self._denoise(denoiser, [size])
                for kind, batch_sizes in (("equal sizes", [self._sizes.equal]), ("mixed sizes", self._sizes.mixed)):
                    await self._measure(denoiser, kind, batch_sizes, references)
            size = self._sizes.mixed[1]
            alone = await device.run(lambda: self._denoise_row_by_row(size))
            self._check.report.add(
                "Qwen-Image: each row alone", from_diffusers=relative_difference(alone, references[size].diffusers)
            )
        finally:
            device.shutdown()

    async def run_precise(self) -> None:
        """Compares one image with diffusers. Only the order of additions may differ."""
        device, size = DeviceThread(), self._sizes.mixed[1]
        try:
            expected = await device.run(lambda: self._call_pipeline(size))
            denoiser = BatchedDenoiser(self._pipeline, device, ImageGeneratorOptions(), ImageGeneratorStats())
            async with running(denoiser):
                (found,) = await self._denoise(denoiser, [size])
            self._check.report.add(PRECISE, from_diffusers=relative_difference(found, expected))
        finally:
            device.shutdown()

    def _denoise_row_by_row(self, size: str) -> torch.Tensor:
        """Returns the latents of an image for which a GPU runs the same kernels as for diffusers' pipeline."""
        denoiser = Denoiser(self._pipeline, self._check.device, self._sizes.steps, row_by_row=True)
        image = denoiser.start(self._request(size), self._embeddings, SEED)
        while not image.is_done:
            denoiser.run_step([image])
        return image.latents

    def _request(self, size: str) -> ImageGenerationRequest:
        return ImageGenerationRequest(prompt="corn", size=size, num_inference_steps=self._sizes.steps)

    async def _measure(
        self,
        denoiser: BatchedDenoiser,
        kind: str,
        sizes: Sequence[str],
        references: Mapping[str, _Reference],
    ) -> None:
        for batch in _batches(sizes):
            alone = [references[size] for size in batch]
            sequential = sum(reference.diffusers_seconds for reference in alone)
            case = f"Qwen-Image: {len(batch)} of {kind}"
            if not self._check.report.can_start(case, 1.2 * sequential):
                continue
            self._check.reset_peak_memory()
            started = time.perf_counter()
            images = await self._denoise(denoiser, batch)
            seconds = time.perf_counter() - started
            pairs = list(zip(images, alone, strict=True))
            self._check.report.add(
                case,
                steps_per_s=len(batch) * self._sizes.steps / seconds,
                diffusers_steps_per_s=len(batch) * self._sizes.steps / sequential,
                times_diffusers=sequential / seconds,
                largest_difference_from_alone=max(
                    relative_difference(image, reference.alone) for image, reference in pairs
                ),
                from_diffusers=max(relative_difference(image, reference.diffusers) for image, reference in pairs),
                peak_gib=self._check.peak_gib,
            )

    async def _denoise(self, denoiser: BatchedDenoiser, sizes: Sequence[str]) -> list[torch.Tensor]:
        """Denoises images with the same seed, and returns their latents."""

        async def denoise(number: int, size: str) -> torch.Tensor:
            image = await denoiser.start(self._request(size), self._embeddings, SEED)
            await denoiser.denoise(image, 0, f"request {number}", None)
            return image.latents

        return list(await gather_all(denoise(number, size) for number, size in enumerate(sizes)))

    async def _timed_pipeline(self, device: DeviceThread, size: str) -> _Reference:
        await device.run(lambda: self._call_pipeline(size))  # The first image of a size takes longer.
        started = time.perf_counter()
        latents = await device.run(lambda: self._call_pipeline(size))
        return _Reference(time.perf_counter() - started, latents, alone=latents)

    def _call_pipeline(self, size: str) -> torch.Tensor:
        width, height = map(int, size.split("x"))
        assert self._embeddings.negative is not None
        latents: torch.Tensor = self._pipeline(
            prompt_embeds=self._embeddings.prompt,
            negative_prompt_embeds=self._embeddings.negative,
            true_cfg_scale=4.0,
            width=width,
            height=height,
            num_inference_steps=self._sizes.steps,
            generator=torch.Generator("cpu").manual_seed(SEED),
            output_type="latent",
        ).images
        return latents


class _Flux:
    """FLUX.1-dev, which runs as a whole pipeline. The steps of concurrent images take turns."""

    def __init__(self, check: Check, sizes: _ImageSizes) -> None:
        self._check = check
        self._sizes = sizes
        started = time.perf_counter()
        self._pipeline = self._build()
        self._alone: dict[str, tuple[str, float]] = {}
        """The file of an image of each size, and the seconds per step of diffusers' own pipeline."""
        check.report.add("FLUX.1: made", seconds=time.perf_counter() - started, peak_gib=check.peak_gib)

    def _build(self) -> Any:
        device, dtype = self._check.device, self._check.dtype
        config = self._check.config("flux.1-dev")
        short, long = make_tokenizer(), make_tokenizer()
        short.model_max_length, long.model_max_length = 77, 512
        tokens = {"vocab_size": len(short), "eos_token_id": short.eos_token_id, "pad_token_id": short.pad_token_id}
        pipeline = FluxPipeline(
            transformer=build_random(lambda: FluxTransformer2DModel(**config["transformer"]), device, dtype),
            scheduler=FlowMatchEulerDiscreteScheduler(**config["scheduler"]),
            vae=build_random(lambda: AutoencoderKL(**config["vae"]), device, dtype),
            text_encoder=build_random(
                lambda: CLIPTextModel(CLIPTextConfig(**config["clip"], **tokens, bos_token_id=None)), device, dtype
            ),
            tokenizer=short,
            text_encoder_2=build_random(lambda: T5EncoderModel(T5Config(**config["t5"], **tokens)), device, dtype),
            tokenizer_2=long,
        )
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    async def run(self) -> None:
        device = DeviceThread()
        options = ImageGeneratorOptions(max_batch_images=max(CONCURRENCY))
        engine = PipelineEngine(Flux(self._pipeline, options), options, ImageGeneratorStats(), device)
        try:
            async with running(engine):
                sizes = dict.fromkeys([self._sizes.equal, *self._sizes.mixed])
                await self._generate(engine, self._sizes.mixed[1:2])
                for size in sizes:
                    (image,), _ = await self._generate(engine, [size])
                    self._alone[size] = image, await device.run(partial(self._pipeline_seconds_per_step, size))
                for kind, batch_sizes in (("equal sizes", [self._sizes.equal]), ("mixed sizes", self._sizes.mixed)):
                    await self._measure(engine, kind, batch_sizes)
        finally:
            device.shutdown()

    async def _measure(self, engine: PipelineEngine, kind: str, sizes: Sequence[str]) -> None:
        for batch in _batches(sizes):
            case = f"FLUX.1: {len(batch)} of {kind}"
            alone = mean(self._alone[size][1] for size in batch)
            if not self._check.report.can_start(case, 1.2 * len(batch) * self._sizes.steps * alone):
                continue
            self._check.reset_peak_memory()
            images, seconds_per_step = await self._generate(engine, batch)
            equal = sum(image == self._alone[size][0] for size, image in zip(batch, images, strict=True))
            self._check.report.add(
                case,
                steps_per_s=1 / seconds_per_step,
                diffusers_steps_per_s=1 / alone,
                times_diffusers=alone / seconds_per_step,
                images_equal_to_alone=f"{equal} of {len(batch)}",
                peak_gib=self._check.peak_gib,
            )

    async def _generate(self, engine: PipelineEngine, sizes: Sequence[str]) -> tuple[list[str], float]:
        """Generates images with the same seed. Returns the files and the seconds per step."""
        moments: list[float] = []

        async def record(progress: ImageProgress) -> None:
            moments.append(time.perf_counter())

        async def generate(number: int, size: str) -> str:
            request = ImageGenerationRequest(prompt="corn", size=size, num_inference_steps=self._sizes.steps, seed=SEED)
            response = await engine.generate(request, f"request {number}", record)
            return response.images[0].b64_json

        images = list(await gather_all(generate(number, size) for number, size in enumerate(sizes)))
        first_round = len(sizes)  # Its steps include the text encoder.
        return images, (moments[-1] - moments[first_round - 1]) / (len(moments) - first_round)

    def _pipeline_seconds_per_step(self, size: str) -> float:
        """Returns the seconds between two steps of diffusers' own pipeline."""
        moments: list[float] = []

        def record(pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            if self._check.device == "cuda":
                torch.cuda.synchronize()
            moments.append(time.perf_counter())
            return tensors

        width, height = map(int, size.split("x"))
        self._pipeline(
            prompt="corn",
            width=width,
            height=height,
            num_inference_steps=self._sizes.steps,
            generator=torch.Generator("cpu").manual_seed(SEED),
            max_sequence_length=512,
            output_type="latent",
            callback_on_step_end=record,
        )
        return (moments[-1] - moments[0]) / (len(moments) - 1)


def _batches(sizes: Sequence[str]) -> Iterator[list[str]]:
    """Yields the sizes of concurrent images, which alternate."""
    for count in CONCURRENCY:
        if count > 1 or len(sizes) == 1:
            yield list(islice(cycle(sizes), count))
