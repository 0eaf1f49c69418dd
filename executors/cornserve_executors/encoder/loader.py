"""A multimodal model's vision tower and projector, without its language model.

transformers builds the whole model, but without memory for its weights. What belongs to the encoder is then filled
from the checkpoint; the rest is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoImageProcessor, AutoModel

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.copies import bytes_of
from cornserve_executors.encoder.checkpoint import EncoderCheckpoint
from cornserve_executors.encoder.families.family import EncoderFamily
from cornserve_executors.encoder.families.registry import FAMILIES
from cornserve_tasklib.encoder import EncoderTask


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    family: EncoderFamily
    fingerprint: str
    """Of all that, beside an image's bytes, its embeddings depend on."""


def load(settings: EncoderTask, device: str) -> LoadedEncoder:
    try:
        config = AutoConfig.from_pretrained(settings.model_id)
        family_type = _family_type(settings.model_id, config)
        processor = AutoImageProcessor.from_pretrained(settings.model_id)
        checkpoint = EncoderCheckpoint(settings.model_id)
    except (OSError, ValueError) as error:
        raise ExecutorStartError(f"{settings.model_id} cannot be loaded: {_first_line(error)}") from error
    dtype = _dtype(settings, config, device)
    names = _encoder_names(checkpoint, family_type)
    model = _skeleton(config, family_type, dtype)
    weights, digests = {}, {}
    with ThreadPoolExecutor() as threads:
        for name, tensor in checkpoint.read(names):
            # A file's name, size and time would tell nothing for certain, and differ between nodes.
            digests[names[name]] = threads.submit(_digest, tensor)
            weights[names[name]] = tensor.to(device, dtype, copy=True)
    _fill(settings.model_id, model, weights)
    model.to(device)  # What is no weight: the frequencies of rotary embeddings.
    contents = sorted((name, digest.result()) for name, digest in digests.items())
    made_by = config.to_dict() | {"_name_or_path": ""}, processor.to_dict(), dtype
    fingerprint = sha256(repr((contents, made_by)).encode())
    return LoadedEncoder(family_type(model, processor), fingerprint.hexdigest())


def _family_type(model_id: str, config: Any) -> type[EncoderFamily]:
    family_type = FAMILIES.get(config.model_type)
    if family_type is None:
        known = ", ".join(sorted(FAMILIES))
        raise ExecutorStartError(f"{model_id} is a {config.model_type}; encoders can be loaded of these only: {known}")
    return family_type


def _dtype(settings: EncoderTask, config: Any, device: str) -> torch.dtype:
    """The language executor's choice, which for "auto" is vLLM's on GPUs, and ours on CPUs."""
    if settings.dtype != "auto":
        dtype: torch.dtype = getattr(torch, settings.dtype)
        return dtype
    if device == "cpu":
        return torch.float32
    return torch.bfloat16 if config.dtype in (None, torch.float32) else config.dtype


def _encoder_names(checkpoint: EncoderCheckpoint, family_type: type[EncoderFamily]) -> dict[str, str]:
    """Of the encoder's tensors: what the model calls them, by what the checkpoint does.

    Older checkpoints name them as parts of the model, newer ones as parts of the model that also has a head.
    """
    names = {name: name.removeprefix("model.") for name in checkpoint.names}
    return {name: inside for name, inside in names.items() if inside.split(".")[0] in family_type.submodules}


def _skeleton(config: Any, family_type: type[EncoderFamily], dtype: torch.dtype) -> Any:
    with init_empty_weights(include_buffers=False):
        model = AutoModel.from_config(config, dtype=dtype)
    for name, _ in list(model.named_children()):
        if name not in family_type.submodules:
            delattr(model, name)
    return model.eval().requires_grad_(False)


def _fill(model_id: str, model: Any, weights: Mapping[str, torch.Tensor]) -> None:
    missing = sorted(model.state_dict().keys() - weights.keys())
    if missing:
        raise ExecutorStartError(f"{model_id} lacks weights of its encoder: {', '.join(missing)}")
    model.load_state_dict(weights, assign=True)


def _digest(tensor: torch.Tensor) -> str:
    digest = sha256(repr((tensor.dtype, tensor.shape)).encode())
    digest.update(bytes_of(tensor))
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
