"""Trains the denoiser of the demo's image model: Qwen-Image's transformer, by flow matching."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline, QwenImageTransformer2DModel
from torch.nn.functional import mse_loss

from cornserve_demo.autoencoder import CHANNELS, encode
from cornserve_demo.optimization import Optimization
from cornserve_demo.shapes import SIZE, TRAINED, Shapes, describe, draw

WIDTH = 128
"""The width of the text encoder's output."""

BATCH = 48
TOKENS = SIZE // 16
"""The width and height of an image, in tokens."""

_IMAGES_OF_SHAPES = 6
"""The number of training images of each combination of shapes."""

_WITHOUT_PROMPT = 0.08
"""The share of batches without a prompt, for classifier-free guidance."""

_MIN_DEVIATION = 0.02
"""Dimensions of the embeddings with a smaller deviation, relative to the largest one, are not scaled up further."""

Progress = Callable[[str], None]


def make_transformer() -> Any:
    """Returns a denoiser with random weights."""
    return QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=4 * CHANNELS,
        out_channels=CHANNELS,
        num_layers=4,
        attention_head_dim=32,
        num_attention_heads=4,
        joint_attention_dim=WIDTH,
        axes_dims_rope=(8, 12, 12),
    )


def make_scheduler() -> Any:
    """Returns the scheduler of Qwen-Image."""
    return FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True,
        base_shift=0.5,
        max_shift=0.9,
        base_image_seq_len=256,
        max_image_seq_len=8192,
        shift=1.0,
        shift_terminal=0.02,
        time_shift_type="exponential",
    )


class Samples:
    """Images as latents, with the embeddings of their descriptions."""

    def __init__(self, pipeline: QwenImagePipeline, seed: int, progress: Progress) -> None:
        self._random = random.Random(seed)
        self._embeddings = {shapes: _embed(pipeline, describe(shapes)) for shapes in TRAINED}
        self._empty = _embed(pipeline, " ")
        self._by_length = [[shapes for shapes in TRAINED if len(shapes) == length] for length in (1, 2)]
        self._latents: dict[Shapes, torch.Tensor] = {}
        for number, shapes in enumerate(TRAINED, start=1):
            self._latents[shapes] = self._encode(pipeline.vae, shapes)
            if number % 100 == 0:
                progress(f"images: {number} of {len(TRAINED)} combinations")

    def _encode(self, vae: Any, shapes: Shapes) -> torch.Tensor:
        """Returns images as the transformer's tokens, of the shape [images, tokens, channels]."""
        drawn = np.stack([np.asarray(draw(shapes, self._random)) for _ in range(_IMAGES_OF_SHAPES)])
        images = torch.from_numpy(drawn).permute(0, 3, 1, 2).unsqueeze(2).float() / 127.5 - 1
        statistics = (1, CHANNELS, 1, 1)
        mean, deviation = (
            torch.tensor(values).view(statistics) for values in (vae.config.latents_mean, vae.config.latents_std)
        )
        latents = (encode(vae, images) - mean) / deviation
        packed: torch.Tensor = QwenImagePipeline._pack_latents(
            latents, _IMAGES_OF_SHAPES, CHANNELS, 2 * TOKENS, 2 * TOKENS
        )
        return packed

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns latents and embeddings of a batch. The descriptions of a batch have the same number of tokens."""
        (of_length,) = self._random.choices(self._by_length, weights=[1, 5])
        chosen = self._random.choices(of_length, k=BATCH)
        latents = torch.stack([self._random.choice(list(self._latents[shapes])) for shapes in chosen])
        if self._random.random() < _WITHOUT_PROMPT:
            return latents, self._empty.expand(BATCH, -1, -1)
        return latents, torch.cat([self._embeddings[shapes] for shapes in chosen])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def whiten(self, transformer: Any) -> None:
        """Initializes the layer that reads the text, so that the few dimensions in which descriptions differ count."""
        rows = transformer.txt_norm(torch.cat([embeddings[0] for embeddings in self._embeddings.values()]))
        mean = rows.mean(0)
        _, singular, directions = torch.linalg.svd(rows - mean, full_matrices=False)
        deviations = singular / len(rows) ** 0.5
        scales = 1 / deviations.clamp(min=_MIN_DEVIATION * float(deviations[0]))
        weight = (directions.T * scales) @ directions
        transformer.txt_in.weight.copy_(weight)
        transformer.txt_in.bias.copy_(-weight @ mean)


def _embed(pipeline: QwenImagePipeline, text: str) -> torch.Tensor:
    embeddings: torch.Tensor
    with torch.no_grad():
        embeddings, _ = pipeline.encode_prompt(text)
    return embeddings


def train(transformer: Any, samples: Samples, steps: int, progress: Progress) -> None:
    """Trains the denoiser to predict the velocity from images to noise."""
    samples.whiten(transformer)
    optimization = Optimization(transformer, steps, rate=1.5e-3, peak=2e-3)
    losses: list[float] = []
    for step in range(1, steps + 1):
        latents, embeddings = samples.draw()
        loss = mse_loss(*_predict(transformer, latents, embeddings))
        optimization.minimize(loss)
        losses.append(loss.item())
        if optimization.reports(step):
            progress(f"denoiser: step {step} of {steps}, loss {_mean(losses[-100:]):.4f}")


def _predict(transformer: Any, latents: torch.Tensor, embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the predicted and the true velocity at random times."""
    noise = torch.randn(latents.shape)
    times = torch.sigmoid(torch.randn(len(latents)) + 0.3)
    weights = times.view(-1, 1, 1)
    (predicted,) = transformer(
        hidden_states=(1 - weights) * latents + weights * noise,
        encoder_hidden_states=embeddings,
        timestep=times,
        img_shapes=[[(1, TOKENS, TOKENS)]] * len(latents),
        return_dict=False,
    )
    return predicted, noise - latents


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
