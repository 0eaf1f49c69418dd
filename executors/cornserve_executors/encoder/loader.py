"""Loads a multimodal model's vision and audio towers and their projectors, without its language model.

transformers builds the whole model without memory for its weights. The encoder's modules are then filled from the
checkpoint, and all other modules are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from accelerate import init_empty_weights
from transformers import AutoConfig, AutoFeatureExtractor, AutoImageProcessor, AutoVideoProcessor, PretrainedConfig

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.encoder.checkpoint import EncoderCheckpoint
from cornserve_executors.encoder.families.registry import AnyFamily, TransformersFamily, find_family
from cornserve_executors.encoder.families.vllm_family import VllmFamily
from cornserve_executors.tensor_copies import tensor_digest
from cornserve_executors.vllm.settings import prepare_environment
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.encoder_families import encoder_modalities
from cornserve_tasklib.media import Modality

_PROCESSORS: dict[Modality, Any] = {
    "image": AutoImageProcessor,
    "video": AutoVideoProcessor,
    "audio": AutoFeatureExtractor,
}
"""transformers' classes that load the part of a model's processor for a modality."""


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """The encoder of one modality."""

    family: AnyFamily
    fingerprint: str
    """Identifies everything except the medium that its embeddings depend on: weights, configuration and dtype."""


def load_encoders(settings: EncoderTask, device: str) -> dict[Modality, LoadedEncoder]:
    """Loads the encoders of all modalities into one model: vLLM's, unless there are families for all of them.

    Constant encoders have no weights: they plan media, but cannot encode them.
    """
    if not set(settings.modalities) <= set(encoder_modalities(_model_type(settings))):
        return _load_vllm_encoders(settings, device)
    try:
        config = AutoConfig.from_pretrained(settings.model_id, revision=settings.revision)
        types = {name: find_family(config.model_type, name) for name in settings.modalities}
        processors = {
            name: _PROCESSORS[name].from_pretrained(settings.model_id, revision=settings.revision) for name in types
        }
        checkpoint = EncoderCheckpoint(settings.model_id, settings.revision)
    except (OSError, ValueError) as error:
        raise ExecutorStartError(f"{settings.model_id} cannot be loaded: {_first_line(error)}") from error
    dtype = _select_dtype(settings, config, device)
    model = build_empty_model(config, types.values(), dtype)
    digests = {} if settings.constant else _load_weights(settings.model_id, model, checkpoint, device, dtype)

    def fingerprint(modality: Modality) -> str:
        if settings.constant:
            return f"constant-{modality}"
        others = _submodules(types.values()) - types[modality].submodules
        contents = sorted((name, digest) for name, digest in digests.items() if name.partition(".")[0] not in others)
        sampling = getattr(types[modality], "sampling", None)
        configuration = config.to_dict() | {"_name_or_path": ""}, processors[modality].to_dict(), sampling, dtype
        return sha256(repr((contents, configuration)).encode()).hexdigest()

    return {name: LoadedEncoder(types[name](model, processors[name]), fingerprint(name)) for name in types}


def _model_type(settings: EncoderTask) -> str | None:
    """Returns transformers' name of the type, or None if it is unknown."""
    try:
        fields, _ = PretrainedConfig.get_config_dict(settings.model_id, revision=settings.revision)
    except (OSError, ValueError) as error:
        raise ExecutorStartError(f"{settings.model_id} cannot be loaded: {_first_line(error)}") from error
    found: str | None = fields.get("model_type")
    return found


def _load_vllm_encoders(settings: EncoderTask, device: str) -> dict[Modality, LoadedEncoder]:
    prepare_environment()
    from cornserve_executors.encoder.vllm_tower import VllmTower  # vLLM takes seconds to import.

    try:
        tower = VllmTower.load(settings, device)
    except ExecutorStartError:
        raise
    except Exception as error:  # vLLM and transformers raise many types for files that they cannot load.
        reason = _first_line(error) or type(error).__name__
        raise ExecutorStartError(f"{settings.model_id} cannot be loaded: {reason}") from error
    return {
        modality: LoadedEncoder(
            VllmFamily(tower, modality),
            f"constant-{modality}" if settings.constant else sha256(f"{modality} {tower.digest}".encode()).hexdigest(),
        )
        for modality in settings.modalities
    }


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

    Newer checkpoints have the prefix "model.", because they belong to a model with a head, and those of models that
    speak have the prefix "thinker.". In older ones, towers of CLIP and SigLIP are wrapped in a "vision_model".
    """
    inner = name.removeprefix("model.").removeprefix("thinker.")
    return inner.replace("vision_tower.vision_model.", "vision_tower.", 1)


def _submodules(types: Iterable[type[TransformersFamily]]) -> frozenset[str]:
    return frozenset[str]().union(*(family.submodules for family in types))


def build_empty_model(config: Any, types: Iterable[type[TransformersFamily]], dtype: torch.dtype) -> Any:
    """Returns the modules that families of one model type need, without memory for their weights."""
    types = list(types)
    with init_empty_weights(include_buffers=False):
        model = types[0].build(config, dtype)
    kept = _submodules(types)
    for name, _ in list(model.named_children()):
        if name not in kept:
            delattr(model, name)
    return model.eval().requires_grad_(False)


def _load_weights(
    model_id: str, model: Any, checkpoint: EncoderCheckpoint, device: str, dtype: torch.dtype
) -> dict[str, str]:
    """Fills the model. Returns the digests of the tensors in the checkpoint, by their names in the model."""
    names = _encoder_tensors(checkpoint, model)
    weights, digests = {}, {}
    with ThreadPoolExecutor() as threads:
        for name, tensor in checkpoint.read_tensors(names):
            # The name, size and time of a file do not identify its contents, and differ between nodes.
            digests[names[name]] = threads.submit(tensor_digest, tensor)
            weights[names[name]] = tensor.to(device, dtype, copy=True)
    missing = sorted(model.state_dict().keys() - weights.keys())
    if missing:
        raise ExecutorStartError(f"the checkpoint of {model_id} lacks weights of the encoder: {', '.join(missing)}")
    model.load_state_dict(weights, assign=True)
    model.to(device)  # Moves the buffers, such as the frequencies of rotary embeddings.
    return {name: digest.result() for name, digest in digests.items()}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
