"""Loads the parts of an Omni model that speak from its checkpoint."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import torch

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.checkpoint import SafetensorsCheckpoint
from cornserve_tasklib.model_settings import ModelSettings

_EMBEDDINGS = "thinker.model.embed_tokens.weight"
"""The thinker's embeddings of tokens."""

_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")
_COMPUTED = ".inv_freq"
"""The end of the names of tensors that transformers' modules compute. Some checkpoints contain them."""


class SpeechCheckpoint:
    """The weights of a model. Raises `OSError` or `ExecutorStartError` if the model has no weights."""

    def __init__(self, settings: ModelSettings) -> None:
        self.model_id, self.revision = settings.model_id, settings.revision
        self._checkpoint = SafetensorsCheckpoint(settings.model_id, settings.revision)

    def fill(self, module: Any, prefix: str, device: str, dtype: torch.dtype) -> Any:
        """Returns a module with the tensors whose names have a prefix, without gradients.

        Tensors that the module computes, such as the frequencies of positions, keep their own dtype.

        Raises `ExecutorStartError` if a tensor is missing.
        """
        names = [name for name in self._checkpoint.tensor_names if name.startswith(prefix)]
        tensors = self._checkpoint.read_tensors([name for name in names if not name.endswith(_COMPUTED)])
        weights = _fuse_experts({name.removeprefix(prefix): tensor.to(device, dtype) for name, tensor in tensors})
        missing = sorted(module.state_dict().keys() - weights.keys())
        if missing:
            raise ExecutorStartError(
                f"the checkpoint of {self.model_id} lacks weights of {prefix}: {', '.join(missing)}"
            )
        module.load_state_dict(weights, assign=True)
        return module.to(device).eval().requires_grad_(False)

    def embeddings(self, device: str, dtype: torch.dtype) -> torch.Tensor:
        """Returns the thinker's embeddings of tokens, of the shape [tokens, width]."""
        ((_, embeddings),) = self._checkpoint.read_tensors([_EMBEDDINGS])
        return embeddings.to(device, dtype)


def select_dtype(name: str, device: str) -> torch.dtype:
    """Returns the dtype with a name. `auto` depends on the device."""
    if name == "auto":
        name = "float32" if device == "cpu" else "bfloat16"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


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
