"""Loads a multimodal model's vision or audio tower and its projector, without its language model.

transformers builds the whole model without memory for its weights. The encoder's modules are then filled from the
checkpoint, and all other modules are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoFeatureExtractor, AutoImageProcessor, AutoModel

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.encoder.checkpoint import EncoderCheckpoint
from cornserve_executors.encoder.families.registry import AnyFamily, find_family
from cornserve_executors.tensor_copies import byte_view
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import Modality

_PROCESSORS: dict[Modality, Any] = {"image": AutoImageProcessor, "audio": AutoFeatureExtractor}
"""transformers' classes that load the part of a model's processor for a modality."""


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    family: AnyFamily
    fingerprint: str
    """Identifies everything except the medium that its embeddings depend on: weights, configuration and dtype."""


def load_encoder(settings: EncoderTask, device: str) -> LoadedEncoder:
    """Loads the encoder. A constant one has no weights: it plans media, but cannot encode them."""
    try:
        config = AutoConfig.from_pretrained(settings.model_id, revision=settings.revision)
        family_type = find_family(settings.model_id, config.model_type, settings.modality)
        processor = _PROCESSORS[settings.modality].from_pretrained(settings.model_id, revision=settings.revision)
        checkpoint = EncoderCheckpoint(settings.model_id, settings.revision)
    except (OSError, ValueError) as error:
        raise ExecutorStartError(f"{settings.model_id} cannot be loaded: {_first_line(error)}") from error
    dtype = _select_dtype(settings, config, device)
    if settings.constant:
        return LoadedEncoder(family_type(_build_empty_model(config, family_type, dtype), processor), "constant")
    model = _build_empty_model(config, family_type, dtype)
    names = _encoder_tensors(checkpoint, model)
    weights, digests = {}, {}
    with ThreadPoolExecutor() as threads:
        for name, tensor in checkpoint.read_tensors(names):
            # The name, size and time of a file do not identify its contents, and differ between nodes.
            digests[names[name]] = threads.submit(_digest, tensor)
            weights[names[name]] = tensor.to(device, dtype, copy=True)
    _load_weights(settings.model_id, model, weights)
    model.to(device)  # Moves the buffers, such as the frequencies of rotary embeddings.
    contents = sorted((name, digest.result()) for name, digest in digests.items())
    configuration = config.to_dict() | {"_name_or_path": ""}, processor.to_dict(), dtype
    fingerprint = sha256(repr((contents, configuration)).encode())
    return LoadedEncoder(family_type(model, processor), fingerprint.hexdigest())


def _select_dtype(settings: EncoderTask, config: Any, device: str) -> torch.dtype:
    """Returns the language model's dtype. For "auto", that is vLLM's choice on GPUs, and float32 on CPUs."""
    if settings.dtype != "auto":
        dtype: torch.dtype = getattr(torch, settings.dtype)
        return dtype
    if device == "cpu":
        return torch.float32
    return torch.bfloat16 if config.dtype in (None, torch.float32) else config.dtype


def _encoder_tensors(checkpoint: EncoderCheckpoint, model: Any) -> dict[str, str]:
    """Maps the checkpoint's names of the encoder's tensors to the model's names."""
    wanted = model.state_dict().keys()
    names = {name: _name_in_model(name) for name in checkpoint.tensor_names}
    return {name: inner for name, inner in names.items() if inner in wanted}


def _name_in_model(name: str) -> str:
    """Returns transformers' current name of a tensor.

    Newer checkpoints have the prefix "model.", because they belong to a model with a head. In older ones, towers of
    CLIP and SigLIP are wrapped in a "vision_model".
    """
    return name.removeprefix("model.").replace("vision_tower.vision_model.", "vision_tower.", 1)


def _build_empty_model(config: Any, family_type: type[AnyFamily], dtype: torch.dtype) -> Any:
    with init_empty_weights(include_buffers=False):
        model = AutoModel.from_config(config, dtype=dtype)
    for name, _ in list(model.named_children()):
        if name not in family_type.submodules:
            delattr(model, name)
    return model.eval().requires_grad_(False)


def _load_weights(model_id: str, model: Any, weights: Mapping[str, torch.Tensor]) -> None:
    missing = sorted(model.state_dict().keys() - weights.keys())
    if missing:
        raise ExecutorStartError(f"the checkpoint of {model_id} lacks weights of the encoder: {', '.join(missing)}")
    model.load_state_dict(weights, assign=True)


def _digest(tensor: torch.Tensor) -> str:
    digest = sha256(repr((tensor.dtype, tensor.shape)).encode())
    digest.update(byte_view(tensor))
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
