"""Loads a `QwenImagePipeline`, and runs its text encoder and its VAE. All functions block."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline, QwenImageEditPipeline, QwenImagePipeline
from diffusers.utils import logging

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.image_generator.defaults import guidance_of
from cornserve_executors.image_generator.denoiser import PromptEmbeddings
from cornserve_tasklib.engine import Dtype
from cornserve_tasklib.image_generation import TOKEN_PIXELS, ImageRequest
from cornserve_tasklib.model_settings import ModelSettings

MAX_PROMPT_TOKENS = 1024
"""Maximum number of tokens of a prompt. diffusers truncates longer ones."""


COMPONENTS = ("text_encoder", "tokenizer", "transformer", "scheduler", "vae")
"""diffusers' names of the components."""

EDIT_COMPONENTS = (*COMPONENTS, "processor")
"""The components of a `QwenImageEditPipeline`."""


@contextmanager
def loading(model_id: str) -> Iterator[None]:
    """Raises `ExecutorStartError` for errors of diffusers in the block, which loads a part of the model."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ExecutorStartError(f"{model_id} cannot be loaded: {reason}") from error


def load_pipeline(
    model: ModelSettings,
    dtype: Dtype,
    device: str,
    components: Collection[str] = EDIT_COMPONENTS,
    pipeline_class: Any = QwenImagePipeline,
) -> Any:
    """Loads the given components. Raises `ExecutorStartError` if the model is incomplete, or another pipeline."""
    logging.disable_progress_bar()
    known = EDIT_COMPONENTS if pipeline_class is QwenImageEditPipeline else COMPONENTS
    omitted = dict.fromkeys(set(known) - set(components))
    with loading(model.model_id):
        pipeline = pipeline_class.from_pretrained(
            model.model_id, revision=model.revision, dtype=select_dtype(dtype, device), **omitted
        )
    if "transformer" in components and pipeline.transformer.config.guidance_embeds:
        raise ExecutorStartError(f"{model.model_id} is guidance-distilled, which is not supported: use another model")
    if "vae" in components and pipeline.vae_scale_factor * 2 != TOKEN_PIXELS:
        raise ExecutorStartError(f"{model.model_id} has a VAE that is not supported: use another model")
    return pipeline.to(device)


def pipeline_name(model: ModelSettings) -> str:
    """Returns the name of the pipeline in a model's directory. Raises `ExecutorStartError` if it cannot be read."""
    with loading(model.model_id):
        index = DiffusionPipeline.load_config(model.model_id, revision=model.revision)
    name: str = index["_class_name"]
    return name


def select_pipeline_class(model: ModelSettings) -> Any:
    """Returns the pipeline of the components of a Qwen-Image or Qwen-Image-Edit. Raises the error of
    `pipeline_name`."""
    is_edit = pipeline_name(model) == QwenImageEditPipeline.__name__
    return QwenImageEditPipeline if is_edit else QwenImagePipeline


def select_dtype(name: Dtype, device: str) -> torch.dtype:
    """Returns torch's dtype of weights and latents."""
    if name == "auto":
        name = "float32" if device == "cpu" else "bfloat16"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def load_config(model: ModelSettings, component_class: Any, component: str) -> dict[str, Any]:
    """Returns the configuration of a component. Raises `ExecutorStartError` if it cannot be read."""
    with loading(model.model_id):
        config: dict[str, Any] = component_class.load_config(
            model.model_id, subfolder=component, revision=model.revision
        )
    return config


def check_prompt(pipeline: QwenImagePipeline, name: str, prompt: str) -> int:
    """Returns the number of tokens. Raises `InvalidRequestError` for a prompt that would be truncated."""
    tokens = pipeline.tokenizer(pipeline.prompt_template_encode.format(prompt)).input_ids
    count: int = len(tokens) - pipeline.prompt_template_encode_start_idx
    if count > MAX_PROMPT_TOKENS:
        raise InvalidRequestError(f"{name}: has {count} tokens: the model reads at most {MAX_PROMPT_TOKENS}")
    return count


def encode_prompts(pipeline: QwenImagePipeline, request: ImageRequest) -> PromptEmbeddings:
    """Raises `InvalidRequestError` for a prompt that is too long."""
    is_guided = guidance_of(request) > 1
    return PromptEmbeddings(
        prompt=_encode(pipeline, "prompt", request.prompt),
        negative=_encode(pipeline, "negative_prompt", request.negative_prompt) if is_guided else None,
    )


def _encode(pipeline: QwenImagePipeline, name: str, prompt: str) -> torch.Tensor:
    check_prompt(pipeline, name, prompt)
    # A mask would only exist for a batch of several prompts, with padding.
    embeddings: torch.Tensor
    embeddings, _ = pipeline.encode_prompt(prompt, max_sequence_length=MAX_PROMPT_TOKENS)
    return embeddings


def decode_latents(pipeline: QwenImagePipeline, latents: torch.Tensor, width: int, height: int) -> Any:
    """Returns the image of the latents, as a `PIL.Image.Image`."""
    vae = pipeline.vae
    unpacked = QwenImagePipeline._unpack_latents(latents, height, width, pipeline.vae_scale_factor).to(vae.dtype)
    shape = (1, vae.config.z_dim, 1, 1, 1)
    mean = torch.tensor(vae.config.latents_mean).view(shape).to(unpacked)
    # Not a product with the standard deviation, which diffusers rounds differently.
    scale = 1.0 / torch.tensor(vae.config.latents_std).view(shape).to(unpacked)
    pixels = vae.decode(unpacked / scale + mean, return_dict=False)[0][:, :, 0]
    (image,) = pipeline.image_processor.postprocess(pixels)
    return image
