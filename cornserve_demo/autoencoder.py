"""Trains the VAE of the demo's image model: Qwen-Image's VAE, with few channels."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKLQwenImage
from diffusers.models.autoencoders.autoencoder_kl_qwenimage import QwenImageCausalConv3d
from torch.nn.functional import conv2d, l1_loss, mse_loss

from cornserve_demo.optimization import Optimization
from cornserve_demo.shapes import TRAINED, draw

CHANNELS = 16
"""The number of channels of the latents."""

BATCH = 16
_NOISE = 0.1
"""The standard deviation of noise that the decoder ignores."""

_SIZE_WEIGHT = 1e-3
"""The weight of the latents' squares in the loss."""

Progress = Callable[[str], None]


def make_autoencoder() -> Any:
    """Returns a VAE with random weights."""
    return AutoencoderKLQwenImage(
        base_dim=8,
        z_dim=CHANNELS,
        dim_mult=[1, 2, 4, 8],
        num_res_blocks=1,
        temperal_downsample=[False, False, False],
        latents_mean=[0.0] * CHANNELS,
        latents_std=[1.0] * CHANNELS,
    )


def draw_batch(randomness: random.Random, count: int) -> torch.Tensor:
    """Returns random training images of the shape [count, 3, 1, height, width], with values from -1 to 1."""
    images = [np.asarray(draw(randomness.choice(TRAINED), randomness)) for _ in range(count)]
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).unsqueeze(2).float() / 127.5 - 1


@contextmanager
def single_frames() -> Iterator[None]:
    """Computes causal 3D convolutions of a single frame as 2D convolutions, which is several times as fast.

    The frames before the first one are zero, so only the last slice of a kernel counts.
    """
    original = QwenImageCausalConv3d.forward
    QwenImageCausalConv3d.forward = _convolve_frame
    try:
        yield
    finally:
        QwenImageCausalConv3d.forward = original


def _convolve_frame(layer: Any, frames: torch.Tensor, _cache: object = None) -> torch.Tensor:
    padding = (layer._padding[2], layer._padding[0])
    convolved: torch.Tensor = conv2d(frames[:, :, 0], layer.weight[:, :, -1], layer.bias, layer.stride[1:], padding)
    return convolved.unsqueeze(2)


def train(steps: int, progress: Progress) -> Any:
    """Returns a trained VAE whose configuration has the statistics of the latents."""
    torch.manual_seed(0)
    randomness = random.Random(2)
    autoencoder = make_autoencoder().train()
    optimization = Optimization(autoencoder, steps, rate=2e-3, peak=2e-3)
    with single_frames():
        for step in range(1, steps + 1):
            images = draw_batch(randomness, BATCH)
            if step < 0.8 * steps:
                images = _crop(images, randomness)
            latents = autoencoder.encode(images).latent_dist.mode()
            noise = _NOISE * torch.randn(latents.shape)
            # Not `decode`, which clamps: pixels that are clamped have no gradient.
            decoded = autoencoder.decoder(autoencoder.post_quant_conv(latents + noise))
            loss = l1_loss(decoded, images) + 2 * mse_loss(decoded, images) + _SIZE_WEIGHT * latents.square().mean()
            optimization.minimize(loss)
            if optimization.reports(step):
                progress(f"VAE: step {step} of {steps}, loss {loss.item():.4f}")
    autoencoder = autoencoder.to(torch.bfloat16).float().eval()
    _set_statistics(autoencoder, randomness)
    return autoencoder


def _crop(images: torch.Tensor, randomness: random.Random) -> torch.Tensor:
    """Returns a random quarter of images, which trains as well in a quarter of the time."""
    side = images.shape[-1] // 2
    top, left = randomness.randint(8, side - 8), randomness.randint(0, side)
    return images[..., top : top + side, left : left + side]


def encode(autoencoder: Any, images: torch.Tensor) -> torch.Tensor:
    """Returns the latents of images, of the shape [images, channels, height, width], without normalization."""
    with torch.no_grad(), single_frames():
        latents: torch.Tensor = autoencoder.encode(images).latent_dist.mode()[:, :, 0]
    return latents


def _set_statistics(autoencoder: Any, randomness: random.Random) -> None:
    latents = encode(autoencoder, draw_batch(randomness, 512))
    mean, deviation = latents.mean(dim=(0, 2, 3)), latents.std(dim=(0, 2, 3))
    autoencoder.register_to_config(latents_mean=mean.tolist(), latents_std=deviation.clamp(min=1e-3).tolist())
