"""Loads the parts of a Qwen3-Omni that speak: the talker, the vocoder, and the thinker's embeddings of tokens."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeCode2Wav,
    Qwen3OmniMoeTalkerForConditionalGeneration,
)

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.encoder.checkpoint import EncoderCheckpoint
from cornserve_tasklib.talker import TalkerTask

_EMBEDDINGS = "thinker.model.embed_tokens.weight"
_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


@dataclass(frozen=True, slots=True)
class LoadedTalker:
    """The parts of a model, without gradients."""

    config: Any
    tokenizer: Any
    talker: Any
    vocoder: Any
    embeddings: torch.Tensor
    """The thinker's embeddings of tokens. The shape is [tokens, width]."""


def load_talker(settings: TalkerTask, device: str) -> LoadedTalker:
    """Raises `ExecutorStartError` if the model is incomplete, or not a Qwen3-Omni that speaks."""
    model_id, revision = settings.model_id, settings.revision
    try:
        config = AutoConfig.from_pretrained(model_id, revision=revision)
        if config.model_type != "qwen3_omni_moe" or not config.enable_audio_output:
            raise ExecutorStartError(f"{model_id} cannot speak: use a Qwen3-Omni with a talker")
        tokenizer = AutoTokenizer.from_pretrained(model_id, revision=revision)
        checkpoint = EncoderCheckpoint(model_id, revision)
    except (OSError, ValueError) as error:
        raise ExecutorStartError(f"{model_id} cannot be loaded: {str(error).partition(chr(10))[0]}") from error
    dtype = _select_dtype(settings.options.dtype, device)
    talker = Qwen3OmniMoeTalkerForConditionalGeneration._from_config(config.talker_config)
    vocoder = Qwen3OmniMoeCode2Wav._from_config(config.code2wav_config)
    _load(model_id, talker, checkpoint, "talker.")
    _load(model_id, vocoder, checkpoint, "code2wav.")
    ((_, embeddings),) = checkpoint.read_tensors([_EMBEDDINGS])
    return LoadedTalker(
        config=config,
        tokenizer=tokenizer,
        talker=talker.to(device, dtype).eval().requires_grad_(False),
        # The vocoder is small, and lower precision is audible.
        vocoder=vocoder.to(device, torch.float32).eval().requires_grad_(False),
        embeddings=embeddings.to(device, dtype),
    )


def _select_dtype(name: str, device: str) -> torch.dtype:
    if name == "auto":
        name = "float32" if device == "cpu" else "bfloat16"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _load(model_id: str, module: Any, checkpoint: EncoderCheckpoint, prefix: str) -> None:
    """Fills a module from the tensors of the checkpoint with a prefix."""
    names = [name for name in checkpoint.tensor_names if name.startswith(prefix)]
    weights = _fuse_experts({name.removeprefix(prefix): tensor for name, tensor in checkpoint.read_tensors(names)})
    missing = sorted(module.state_dict().keys() - weights.keys())
    if missing:
        raise ExecutorStartError(f"the checkpoint of {model_id} lacks weights of {prefix}: {', '.join(missing)}")
    module.load_state_dict(weights, assign=True)


def _fuse_experts(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Stacks the weights of experts, which checkpoints contain one by one, as transformers' modules have them."""
    fused: dict[str, torch.Tensor] = {}
    experts: dict[str, dict[tuple[str, int], torch.Tensor]] = defaultdict(dict)
    for name, tensor in weights.items():
        if match := _EXPERT.fullmatch(name):
            experts[match[1]][match[3], int(match[2])] = tensor
        else:
            fused[name] = tensor
    for name, parts in experts.items():
        numbers = range(len(parts) // 3)
        fused[f"{name}.gate_up_proj"] = torch.stack([torch.cat([parts["gate", n], parts["up", n]]) for n in numbers])
        fused[f"{name}.down_proj"] = torch.stack([parts["down", n] for n in numbers])
    return fused
