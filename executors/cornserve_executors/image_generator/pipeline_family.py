"""Families of diffusers pipelines that run as a whole, in one executor."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import PIL.Image
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, StableDiffusion3Pipeline
from diffusers.utils import logging

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.image_generator.pipeline import loading, select_dtype
from cornserve_executors.image_generator.pipeline_call import PreviewScheduler, StepCallback
from cornserve_tasklib.image_generation import (
    TOKEN_PIXELS,
    ImageGenerationRequest,
    ImageGenerator,
    ImageGeneratorOptions,
)


class PipelineFamily:
    """A pipeline.

    Args:
        pipeline: a `pipeline_class` on a device.
    """

    pipeline_class: ClassVar[Any]
    default_guidance: ClassVar[float]
    """The default of `true_cfg_scale`."""
    tokenizers: ClassVar[tuple[str, ...]]
    """diffusers' names of the tokenizers, from the one that reads the longest prompts."""

    def __init__(self, pipeline: Any, options: ImageGeneratorOptions) -> None:
        self.pipeline = pipeline
        self._max_steps = options.max_steps

    @classmethod
    def load(cls, model: ImageGenerator, device: str) -> Self:
        """Loads the pipeline. Blocks.

        Raises `ExecutorStartError` if the model is incomplete, or has components that are not supported.
        """
        logging.disable_progress_bar()
        with loading(model.model_id):
            pipeline = cls.pipeline_class.from_pretrained(
                model.model_id, revision=model.revision, dtype=select_dtype(model.options.dtype, device)
            )
        if not isinstance(pipeline.scheduler, FlowMatchEulerDiscreteScheduler):
            name = type(pipeline.scheduler).__name__
            raise ExecutorStartError(f"{model.model_id} has the scheduler {name}, which is not supported")
        if TOKEN_PIXELS % (2 * pipeline.vae_scale_factor):
            raise ExecutorStartError(f"{model.model_id} has a VAE that is not supported: use another model")
        return cls(pipeline.to(device), model.options)

    @property
    def default_steps(self) -> int:
        """The default of `num_inference_steps`."""
        return 28

    @property
    def max_prompt_tokens(self) -> int:
        """The maximum number of tokens of a prompt. diffusers truncates longer ones."""
        raise NotImplementedError

    def check(self, request: ImageGenerationRequest) -> int:
        """Returns the number of tokens of the prompt. Raises `InvalidRequestError` for one that is too long."""
        tokens = self._count_tokens("prompt", request.prompt)
        if self._guidance(request) > 1:
            self._count_tokens("negative_prompt", request.negative_prompt)
        return tokens

    def call(
        self, request: ImageGenerationRequest, seed: int, scheduler: PreviewScheduler, on_step: StepCallback
    ) -> PIL.Image.Image:
        """Generates an image. The noise only depends on seed, size and dtype."""
        pipeline = type(self.pipeline)(**{**self.pipeline.components, "scheduler": scheduler})
        pipeline.set_progress_bar_config(disable=True)
        images: list[PIL.Image.Image] = pipeline(
            prompt=request.prompt,
            width=request.width,
            height=request.height,
            num_inference_steps=self.steps(request),
            generator=torch.Generator("cpu").manual_seed(seed),
            callback_on_step_end=on_step,
            **self._guidance_arguments(request),
        ).images
        return images[0]

    def new_scheduler(self) -> PreviewScheduler:
        """Returns the scheduler of an image."""
        scheduler: PreviewScheduler = PreviewScheduler.from_config(self.pipeline.scheduler.config)
        return scheduler

    def steps(self, request: ImageGenerationRequest) -> int:
        return request.steps(self.default_steps, self._max_steps)

    def decode(self, request: ImageGenerationRequest, latents: torch.Tensor) -> Any:
        """Returns the image of the latents, as a `PIL.Image.Image`."""
        vae = self.pipeline.vae
        scaled = latents / vae.config.scaling_factor + vae.config.shift_factor
        (image,) = self.pipeline.image_processor.postprocess(vae.decode(scaled, return_dict=False)[0])
        return image

    def _guidance(self, request: ImageGenerationRequest) -> float:
        return self.default_guidance if request.true_cfg_scale is None else request.true_cfg_scale

    def _guidance_arguments(self, request: ImageGenerationRequest) -> dict[str, Any]:
        """Returns the pipeline's arguments for guidance, and the length of prompts."""
        raise NotImplementedError

    def _count_tokens(self, name: str, prompt: str) -> int:
        tokenizer = next(found for found in map(self.pipeline.components.get, self.tokenizers) if found is not None)
        count = len(tokenizer(prompt).input_ids)
        if count > self.max_prompt_tokens:
            raise InvalidRequestError(f"{name}: has {count} tokens: the model reads at most {self.max_prompt_tokens}")
        return count


class StableDiffusion3(PipelineFamily):
    pipeline_class = StableDiffusion3Pipeline
    default_guidance = 7.0
    tokenizers = ("tokenizer_3", "tokenizer")

    @property
    def max_prompt_tokens(self) -> int:
        tokens: int = 256 if self.pipeline.text_encoder_3 is not None else self.pipeline.tokenizer.model_max_length
        return tokens

    def check(self, request: ImageGenerationRequest) -> int:
        if request.guidance_scale is not None:
            raise InvalidRequestError("guidance_scale: this model is not guidance-distilled: use true_cfg_scale")
        return super().check(request)

    def _guidance_arguments(self, request: ImageGenerationRequest) -> dict[str, Any]:
        return {
            "guidance_scale": self._guidance(request),
            "negative_prompt": request.negative_prompt.strip() or None,
            "max_sequence_length": 256,
        }


class Flux(PipelineFamily):
    pipeline_class = FluxPipeline
    default_guidance = 1.0
    tokenizers = ("tokenizer_2",)

    @property
    def default_steps(self) -> int:
        return 28 if self._is_guidance_distilled else 4

    @property
    def max_prompt_tokens(self) -> int:
        return 512 if self._is_guidance_distilled else 256

    @property
    def _is_guidance_distilled(self) -> bool:
        """Whether the model is FLUX.1-dev. FLUX.1-schnell reads no guidance."""
        distilled: bool = self.pipeline.transformer.config.guidance_embeds
        return distilled

    def check(self, request: ImageGenerationRequest) -> int:
        if request.guidance_scale is not None and not self._is_guidance_distilled:
            raise InvalidRequestError("guidance_scale: this model is not guidance-distilled: remove it")
        return super().check(request)

    def decode(self, request: ImageGenerationRequest, latents: torch.Tensor) -> Any:
        pipeline = self.pipeline
        unpacked = pipeline._unpack_latents(latents, request.height, request.width, pipeline.vae_scale_factor)
        return super().decode(request, unpacked)

    def _guidance_arguments(self, request: ImageGenerationRequest) -> dict[str, Any]:
        return {
            "guidance_scale": 3.5 if request.guidance_scale is None else request.guidance_scale,
            "true_cfg_scale": self._guidance(request),
            "negative_prompt": request.negative_prompt,
            "max_sequence_length": self.max_prompt_tokens,
        }


FAMILIES: dict[str, type[PipelineFamily]] = {
    family.pipeline_class.__name__: family for family in (StableDiffusion3, Flux)
}
"""Families by the name of the pipeline's class."""
