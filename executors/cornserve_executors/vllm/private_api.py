"""All calls of vLLM's private names. docs/how-to/upgrade-vllm.md lists the tests that check them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.model_executor.model_loader import DefaultModelLoader
from vllm.model_executor.model_loader.weight_utils import filter_mm_encoder_only_safetensors_files
from vllm.multimodal.inputs import MultiModalKwargsItem, MultiModalKwargsItems
from vllm.multimodal.parse import MultiModalDataItems
from vllm.multimodal.processing.processor import ResolvedPromptUpdate
from vllm.renderers import BaseRenderer


def processing_thread(renderer: BaseRenderer) -> Executor:
    """Returns the only thread in which vLLM uses its processor of media."""
    thread: Executor = renderer._mm_executor
    return thread


def prompt_updates(
    processor: Any,
    media: MultiModalDataItems,
    arguments: Mapping[str, Any],
    items: Mapping[str, Sequence[MultiModalKwargsItem]],
) -> Mapping[str, Sequence[Sequence[ResolvedPromptUpdate]]]:
    """Returns the changes of a prompt for media, by modality, from their inputs of the model.

    Args:
        media: the media, which some processors count, or whose size they read.
        arguments: vLLM's `mm_processor_kwargs`.
    """
    updates: Mapping[str, Sequence[Sequence[ResolvedPromptUpdate]]] = processor._get_mm_prompt_updates(
        media, arguments, MultiModalKwargsItems(items)
    )
    return updates


def adapter_manager(worker_manager: Any) -> Any:
    """Returns the manager of the layers that accept LoRA adapters, of a `WorkerLoRAManager`."""
    return worker_manager._adapter_manager


def load_adapter(worker_manager: Any, request: LoRARequest) -> dict[str, Any]:
    """Returns the weights of a LoRA adapter by the name of their layer, before vLLM packs them."""
    loras: dict[str, Any] = worker_manager._load_adapter(request).loras
    return loras


def keep_hidden_states_of_layer(model: Any, layer: int) -> None:
    """Lets a language model return the hidden states before a layer, too."""
    model._set_aux_hidden_state_layers((layer,))


def encoder_files(loader: DefaultModelLoader, index: Path) -> list[str]:
    """Returns the names of the files with weights of the encoders, while the loader of an encoder loads weights.

    Args:
        index: the index of the checkpoint, which names its files.
    """
    files = {*json.loads(index.read_text())["weight_map"].values()}
    paths: list[str] = filter_mm_encoder_only_safetensors_files(
        [str(index.with_name(file)) for file in files],
        str(index.parent),
        index.name,
        loader._encoder_only_lm_prefixes or (),
        weights_mapper=loader._encoder_only_weights_mapper,
    )
    return [Path(path).name for path in paths]
