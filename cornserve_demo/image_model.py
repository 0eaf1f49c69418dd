"""Trains the image model of the demo: a Qwen-Image that draws the shapes that a text names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from diffusers import QwenImagePipeline
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

from cornserve_demo import autoencoder, denoiser

Progress = Callable[[str], None]

WEIGHTS = "model.safetensors"


def train(directory: Path, reader: Path, steps: int, progress: Progress) -> None:
    """Trains and saves the model.

    Args:
        reader: the trained vision-language model, which is the text encoder.
        steps: the number of training steps of the VAE, and that of the denoiser.
    """
    vae = autoencoder.train(steps, progress)
    torch.manual_seed(0)
    pipeline = QwenImagePipeline(
        scheduler=denoiser.make_scheduler(),
        vae=vae,
        text_encoder=Qwen2_5_VLForConditionalGeneration.from_pretrained(reader, dtype=torch.float32).eval(),
        tokenizer=AutoTokenizer.from_pretrained(reader),
        transformer=denoiser.make_transformer(),
    )
    samples = denoiser.Samples(pipeline, seed=3, progress=progress)
    denoiser.train(pipeline.transformer, samples, steps, progress)
    save(pipeline, directory, reader)


def save(pipeline: QwenImagePipeline, directory: Path, reader: Path) -> None:
    """Saves a model in bfloat16. The text encoder is a copy of the vision-language model."""
    pipeline.transformer.eval()
    pipeline.to(torch.bfloat16).save_pretrained(directory)
    shutil.copyfile(reader / WEIGHTS, directory / "text_encoder" / WEIGHTS)
