"""Builds models with random weights on a device. No checkpoint is read or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from accelerate import init_empty_weights


def build_random(create: Callable[[], Any], device: str, dtype: torch.dtype) -> Any:
    """Returns a module with random weights. Its buffers keep the values that the module computes.

    The weights of layers have a variance for which outputs are about as large as inputs. Those of norms and
    scales are 1, and biases are 0.

    Args:
        create: constructs the module; its parameters take no memory meanwhile.
    """
    with init_empty_weights(include_buffers=False):
        module = create()
    generator = torch.Generator(device).manual_seed(0)
    for layer in module.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            weight = torch.empty(parameter.shape, dtype=dtype, device=device)
            _fill(weight, layer, name, generator)
            layer.register_parameter(name, torch.nn.Parameter(weight, requires_grad=False))
    return module.eval().to(device)


def _fill(weight: torch.Tensor, layer: Any, name: str, generator: torch.Generator) -> None:
    with torch.no_grad():
        if weight.dim() == 1:
            weight.fill_(float(name in {"weight", "scale", "gamma"}))
            return
        if isinstance(layer, torch.nn.modules.conv._ConvTransposeNd):
            inputs = weight[:, 0].numel()
        elif isinstance(layer, torch.nn.modules.conv._ConvNd):
            inputs = weight[0].numel()
        else:
            inputs = weight.shape[-1]
        weight.normal_(std=inputs**-0.5, generator=generator)
