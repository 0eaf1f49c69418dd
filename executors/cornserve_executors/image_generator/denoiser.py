"""Denoises images of different requests together, one step at a time.

The state of an image between two steps is its latents, a scheduler of its own and the number of its steps, so images of
different prompts, sizes and numbers of steps join and leave the batch at any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from diffusers import QwenImagePipeline
from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift, retrieve_timesteps
from diffusers.utils.torch_utils import randn_tensor

from cornserve_executors.image_generator.defaults import DEFAULT_STEPS, guidance_of
from cornserve_executors.image_generator.ragged_batches import ImageShape, RaggedTransformer
from cornserve_tasklib.image_generation import TOKEN_PIXELS, ImageRequest


@dataclass(slots=True)
class PromptEmbeddings:
    """The output of the text encoder, of the shape [1, tokens, width]."""

    prompt: torch.Tensor
    negative: torch.Tensor | None
    """None for images without guidance."""

    def joined(self) -> torch.Tensor:
        """Returns the rows of the prompt and of the negative prompt, of the shape [1, tokens, width]."""
        return self.prompt if self.negative is None else torch.cat([self.prompt, self.negative], dim=1)

    @classmethod
    def split(cls, rows: torch.Tensor, prompt_tokens: int) -> PromptEmbeddings:
        """Returns the embeddings that `joined` has joined."""
        negative = rows[:, prompt_tokens:]
        return cls(rows[:, :prompt_tokens], negative if negative.shape[1] else None)

    def to(self, dtype: torch.dtype) -> PromptEmbeddings:
        """Returns the embeddings in the dtype."""
        return PromptEmbeddings(self.prompt.to(dtype), None if self.negative is None else self.negative.to(dtype))


@dataclass(frozen=True, slots=True)
class SourceLatents:
    """An image to edit."""

    latents: torch.Tensor
    """The shape is [1, tokens, channels]."""
    shape: tuple[int, int, int]
    """Frames, height and width in tokens."""

    def to(self, dtype: torch.dtype) -> SourceLatents:
        """Returns the latents in the dtype."""
        return SourceLatents(self.latents.to(dtype), self.shape)


@dataclass(slots=True, eq=False)
class DenoisedImage:
    """An image between two steps."""

    embeddings: PromptEmbeddings
    guidance: float
    shape: ImageShape
    latents: torch.Tensor
    """The shape is [1, tokens, channels]."""
    scheduler: Any
    timesteps: torch.Tensor
    preview_steps: frozenset[int]
    """The steps after which there is a preview."""
    source: SourceLatents | None = None
    """The image to edit."""
    step: int = 0
    """The number of completed steps."""
    preview: torch.Tensor | None = None
    """The latents of a preview after the last step: the image that the denoiser expects at the end."""

    @property
    def inputs(self) -> torch.Tensor:
        """The input of the transformer, of the shape [1, tokens, channels]: the latents, then those of the source."""
        return self.latents if self.source is None else torch.cat([self.latents, self.source.latents], dim=1)

    @property
    def steps(self) -> int:
        """The number of all steps."""
        return len(self.timesteps)

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def is_done(self) -> bool:
        return self.step == self.steps


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a batch: an image with its prompt, or with its negative prompt."""

    image: DenoisedImage
    embeddings: torch.Tensor


@dataclass(frozen=True, slots=True)
class _CompletedStep:
    """The state of an image after a step."""

    latents: torch.Tensor
    scheduler: Any
    preview: torch.Tensor | None


class Denoiser:
    """The transformer and the scheduler of a `QwenImagePipeline`. Changes the transformer.

    Args:
        row_by_row: see `RaggedTransformer`.
    """

    def __init__(self, pipeline: QwenImagePipeline, device: str, max_steps: int, *, row_by_row: bool) -> None:
        self._transformer = RaggedTransformer(pipeline.transformer, row_by_row=row_by_row)
        self._scheduler = pipeline.scheduler
        self._device = device
        self._max_steps = max_steps

    def start(
        self,
        request: ImageRequest,
        embeddings: PromptEmbeddings,
        seed: int,
        source: SourceLatents | None = None,
    ) -> DenoisedImage:
        """Returns an image of noise. The noise only depends on seed, size and dtype.

        Args:
            source: the image to edit.
        """
        height, width = request.height // TOKEN_PIXELS, request.width // TOKEN_PIXELS
        channels = self._transformer.config.in_channels // 4
        generator = torch.Generator("cpu").manual_seed(seed)
        size = (1, 1, channels, 2 * height, 2 * width)
        noise = randn_tensor(size, generator=generator, dtype=embeddings.prompt.dtype).to(self._device)
        scheduler = type(self._scheduler).from_config(self._scheduler.config)
        steps = request.steps(DEFAULT_STEPS, self._max_steps)
        timesteps = self._set_timesteps(scheduler, height * width, steps)
        return DenoisedImage(
            embeddings=embeddings,
            guidance=guidance_of(request),
            shape=[(1, height, width), *([] if source is None else [source.shape])],
            latents=QwenImagePipeline._pack_latents(noise, 1, channels, 2 * height, 2 * width),
            scheduler=scheduler,
            timesteps=timesteps,
            preview_steps=preview_steps(steps, request.partial_images),
            source=source,
        )

    def _set_timesteps(self, scheduler: Any, tokens: int, steps: int) -> torch.Tensor:
        setting = scheduler.config.get
        shift = calculate_shift(
            tokens,
            setting("base_image_seq_len", 256),
            setting("max_image_seq_len", 4096),
            setting("base_shift", 0.5),
            setting("max_shift", 1.15),
        )
        sigmas = np.linspace(1.0, 1 / steps, steps)
        timesteps: torch.Tensor
        timesteps, _ = retrieve_timesteps(scheduler, steps, self._device, sigmas=sigmas, mu=shift)
        scheduler.set_begin_index(0)
        return timesteps

    def run_step(self, images: Sequence[DenoisedImage]) -> None:
        """Runs the next step of each image, in one batch. If this raises, the images are unchanged."""
        rows = [_Row(image, image.embeddings.prompt) for image in images]
        guided = [image for image in images if image.embeddings.negative is not None]
        rows += [_Row(image, image.embeddings.negative) for image in guided if image.embeddings.negative is not None]
        predicted = self._predict(rows)
        unguided = dict(zip(map(id, guided), predicted[len(images) :], strict=True))
        completed: list[_CompletedStep] = []
        for image, prediction in zip(images, predicted, strict=False):
            negative = unguided.get(id(image))
            velocity = prediction if negative is None else _guide(prediction, negative, image.guidance)
            completed.append(_complete_step(image, velocity))
        for image, step in zip(images, completed, strict=True):
            image.latents, image.scheduler, image.preview = step.latents, step.scheduler, step.preview
            image.step += 1

    def _predict(self, rows: Sequence[_Row]) -> list[torch.Tensor]:
        """Returns the velocity of each row, of the shape of its latents."""
        images = [row.image for row in rows]
        timesteps = torch.stack([image.timesteps[image.step] for image in images]).to(images[0].latents.dtype)
        predicted = self._transformer.predict(
            latents=[image.inputs for image in images],
            embeddings=[row.embeddings for row in rows],
            timesteps=timesteps / 1000,
            shapes=[image.shape for image in images],
        )
        return [row[:, : image.latents.shape[1]] for row, image in zip(predicted, images, strict=True)]


def _complete_step(image: DenoisedImage, velocity: torch.Tensor) -> _CompletedStep:
    """Returns the state of an image after its next step. Does not change the image."""
    timestep, sigma = image.timesteps[image.step], image.scheduler.sigmas[image.step]
    has_preview = image.step + 1 in image.preview_steps
    preview = (image.latents - sigma * velocity).to(velocity.dtype) if has_preview else None
    scheduler = copy(image.scheduler)  # A step changes the scheduler's attributes, not the objects that they contain.
    (latents,) = scheduler.step(velocity, timestep, image.latents, return_dict=False)
    return _CompletedStep(latents, scheduler, preview)


def preview_steps(steps: int, previews: int) -> frozenset[int]:
    """Returns steps at equal distances, without the last one."""
    return frozenset(steps * number // (previews + 1) for number in range(1, previews + 1)) - {0}


def _guide(prediction: torch.Tensor, negative: torch.Tensor, scale: float) -> torch.Tensor:
    """Applies classifier-free guidance with the norm of the prediction, as `QwenImagePipeline` does."""
    combined = negative + scale * (prediction - negative)
    norm = torch.norm(prediction, dim=-1, keepdim=True)
    guided: torch.Tensor = combined * (norm / torch.norm(combined, dim=-1, keepdim=True))
    return guided
