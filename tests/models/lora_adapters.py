"""Makes LoRA adapters with random weights, in the format of PEFT, and the models with merged weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PREFIX = "base_model.model."
Weights = dict[str, Any]
"""Tensors of torch, which is imported only where it is used, because this takes seconds."""


def weights_of(model: Path) -> Weights:
    """Returns the weights of a checkpoint in one file."""
    from safetensors.torch import load_file

    weights: Weights = load_file(model / "model.safetensors")
    return weights


def make_adapter(
    model: Path, directory: Path, targets: Sequence[str], *, seed: int, rank: int = 4, scale: float = 1.0
) -> Path:
    """Makes an adapter of all layers whose names end with one of the targets."""
    import torch

    torch.manual_seed(seed)
    weights: Weights = {}
    for name, weight in weights_of(model).items():
        layer = name.removesuffix(".weight")
        if layer.endswith(tuple(targets)):
            rows, columns = weight.shape
            deviation = float(weight.std()) / rank**0.5
            weights[f"{PREFIX}{layer}.lora_A.weight"] = torch.randn(rank, columns) * deviation
            weights[f"{PREFIX}{layer}.lora_B.weight"] = torch.randn(rows, rank)
    assert weights
    return write_adapter(directory, weights, r=rank, lora_alpha=scale * rank, target_modules=list(targets))


def write_adapter(directory: Path, weights: Weights, **config: Any) -> Path:
    from safetensors.torch import save_file

    directory.mkdir()
    defaults = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none"}
    (directory / "adapter_config.json").write_text(json.dumps(defaults | config))
    save_file(weights, directory / "adapter_model.safetensors")
    return directory


def merge(model: Path, adapter: Path, directory: Path) -> Path:
    """Makes the model whose weights contain the adapter: W + scale · B A."""
    from safetensors.torch import load_file, save_file

    config: Mapping[str, Any] = json.loads((adapter / "adapter_config.json").read_text())
    deltas: Weights = load_file(adapter / "adapter_model.safetensors")
    weights = weights_of(model)
    shutil.copytree(model, directory)
    for name, matrix in deltas.items():
        layer, is_a, _ = name.removeprefix(PREFIX).partition(".lora_A")
        if is_a:
            delta = deltas[f"{PREFIX}{layer}.lora_B.weight"] @ matrix
            weights[f"{layer}.weight"] += config["lora_alpha"] / config["r"] * delta
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    return directory
