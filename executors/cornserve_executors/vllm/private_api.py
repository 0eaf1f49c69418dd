"""All uses of vLLM's private names. The page "Upgrade vLLM" in docs/ lists the tests that check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

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
