"""Checks in a vLLM worker that a model applies all weights of a LoRA adapter.

vLLM ignores weights of layers that the model does not have, or that are part of an encoder. It accepts matrices that
are smaller than those of the model.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear

from cornserve_executors.vllm.private_api import adapter_manager, load_adapter


class AdapterError(Exception):
    """The model cannot apply an adapter completely."""


class _Layer(NamedTuple):
    """A layer of vLLM that accepts adapters, or a part of it."""

    module: Any
    part: int | None = None
    """The index of the part. None is the complete layer."""


def check_adapter(manager: Any, request: LoRARequest) -> None:
    """Raises `AdapterError` for weights that the model does not apply, and vLLM's errors.

    Args:
        manager: vLLM's `WorkerLoRAManager`.
    """
    layers = _layers(adapter_manager(manager))
    for name, weights in _load(manager, request).items():
        layer = layers.get(name.removesuffix(".base_layer"))
        if layer is None:
            raise _missing(name)
        if weights.lora_a is None or weights.lora_b is None:
            raise AdapterError(f"{name!r} has only one of the two matrices lora_A and lora_B")
        if not (weights.lora_a.isfinite().all() and weights.lora_b.isfinite().all()):
            raise AdapterError(f"{name!r} has weights that are not finite (NaN or infinity)")
        rows, columns = weights.lora_a.shape[0], weights.lora_b.shape[1]
        if not rows == columns == weights.rank:
            raise AdapterError(
                f"{name!r} has {rows} rows in lora_A and {columns} columns in lora_B, but its rank is {weights.rank}"
            )
        if isinstance(layer.module, BaseLinearLayerWithLoRA):
            _check_size(f"the columns of {name!r} in lora_A", weights.lora_a.shape[1], _input_size(layer))
            _check_size(f"the rows of {name!r} in lora_B", weights.lora_b.shape[0], _output_size(layer))


def _load(manager: Any, request: LoRARequest) -> dict[str, Any]:
    """Returns the weights of an adapter by the name of their layer, before vLLM packs them."""
    try:
        return load_adapter(manager, request)
    except ValueError as error:
        if unexpected := re.search(r"expected target modules in .* but received \['([^']+)'", str(error)):
            raise _missing(unexpected[1]) from error
        raise


def _missing(name: str) -> AdapterError:
    return AdapterError(f"the model has no layer {name!r} to which vLLM can apply an adapter")


def _layers(manager: Any) -> dict[str, _Layer]:
    """Returns the layers that accept adapters, by the names of a checkpoint.

    vLLM packs several layers of a checkpoint, such as `q_proj`, `k_proj` and `v_proj`, into one.
    """
    layers = {name: _Layer(module) for name, module in manager.modules.items()}
    for packed, names in manager.packed_modules.items():
        if packed in manager.modules:
            layers |= {name: _Layer(manager.modules[packed], part) for part, name in enumerate(names)}
    return layers


def _input_size(layer: _Layer) -> int:
    """Returns the number of inputs of a layer. With tensor parallelism, each worker has a share of them."""
    size: int = layer.module.lora_a_stacked[0].shape[-1]
    is_divided = isinstance(layer.module.base_layer, RowParallelLinear)
    return size * layer.module.tp_size if is_divided else size


def _output_size(layer: _Layer) -> int | None:
    """Returns the number of outputs of a layer, or None if several workers have the same ones."""
    base, parts = layer.module.base_layer, layer.module.lora_b_stacked
    if isinstance(base, QKVParallelLinear) and base.num_kv_head_replicas > 1:
        return None
    size: int = sum(part.shape[-2] for part in (parts if layer.part is None else [parts[layer.part]]))
    return size * layer.module.tp_size if isinstance(base, ColumnParallelLinear) else size


def _check_size(subject: str, given: int, expected: int | None) -> None:
    if expected is not None and given != expected:
        raise AdapterError(f"{subject} are {given}, but the model needs {expected}: use the base model of the adapter")
