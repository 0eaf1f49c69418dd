"""Media that vLLM's processor has processed.

The processor treats each medium by itself. Its cache has an entry for each: the inputs of the model, and the changes of
the prompt. An encoder records the entry of a medium, and sends its changes and its small inputs, such as grids
(`media_metadata.py`). A language model gives the entries of all media to its own processor in place of the media.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.inputs.engine import MultiModalInput
from vllm.model_executor.model_loader import get_model_cls
from vllm.multimodal.cache import BaseMultiModalProcessorCache
from vllm.multimodal.inputs import MultiModalKwargsItem
from vllm.multimodal.parse import parse_mm_uuids
from vllm.multimodal.processing.context import TimingContext
from vllm.multimodal.processing.inputs import ProcessorInputs
from vllm.multimodal.processing.processor import ResolvedPromptUpdate
from vllm.utils.cache import CacheInfo

from cornserve_tasklib.media import Modality

PATCH_PIXELS = 14 * 14
"""Pixels that a patch counts as when memory is limited: those of most models. A patch of Qwen3-VL has 16 * 16."""

PATCH_BYTES = 3 * 4 * PATCH_PIXELS
"""Bytes of the pixels of a patch in float32."""

Entry = tuple[MultiModalKwargsItem, Sequence[ResolvedPromptUpdate]]
"""An entry of the processor's cache."""


class ItemCache(BaseMultiModalProcessorCache):  # type: ignore[misc]
    """The processor's cache for one prompt: contains known entries, and records the others."""

    def __init__(self, known: Mapping[str, Entry]) -> None:
        self._known = known
        self.recorded: list[Entry] = []

    def is_cached_item(self, mm_hash: str) -> bool:
        return mm_hash in self._known

    def get_and_update_item(self, mm_item: Entry | None, mm_hash: str) -> Entry:
        if mm_item is None:
            return self._known[mm_hash]
        self.recorded.append(mm_item)
        return mm_item

    def touch_sender_cache_item(self, mm_hash: str) -> None:
        """Does nothing: entries are kept as long as the prompt is processed."""

    def clear_cache(self) -> None:
        """Does nothing."""

    def make_stats(self, *, delta: bool = False) -> CacheInfo:
        return CacheInfo(hits=0, total=0)


@dataclass(frozen=True, slots=True)
class ProcessedMedium:
    """A medium after vLLM's processor."""

    modality: Modality
    item: MultiModalKwargsItem
    """Its inputs of the model, with pixels or features on the host. Those of received media lack large inputs."""
    updates: Sequence[ResolvedPromptUpdate]

    @property
    def rows(self) -> int:
        """The number of its embeddings."""
        content = self.updates[0].content
        return len(content.full) if content.is_embed is None else int(content.is_embed(content.full).sum())

    @property
    def patches(self) -> int:
        """A measure of the work of encoding: the patches of its grid, or else its inputs in units of a patch's."""
        for name in ("image_grid_thw", "video_grid_thw"):
            if name in self.item:
                return int(self.item[name].data.prod())
        return max(1, sum(_nbytes(element.data) for element in self.item.values()) // PATCH_BYTES)


def process_medium(
    processor: Any, marker: Sequence[int], modality: Modality, medium: object, arguments: Mapping[str, Any]
) -> ProcessedMedium:
    """Processes a decoded medium alone. Blocks. Raises `ValueError` if the processor rejects it.

    Args:
        marker: the prompt of a medium alone, before processing.
        arguments: vLLM's `mm_processor_kwargs`.
    """
    cache = ItemCache({})
    apply_processor(processor, marker, {modality: [medium]}, {modality: ["medium"]}, cache, arguments)
    ((item, updates),) = cache.recorded
    return ProcessedMedium(modality, item, updates)


def medium_marker(model_config: Any, processor: Any, tokenizer: Any, modality: Modality) -> list[int]:
    """Returns the tokens of the prompt of a medium alone, before processing."""
    placeholder = get_model_cls(model_config).get_placeholder_str(modality, 1) or ""
    dummy = processor.dummy_inputs.get_dummy_text({modality: 1})
    tokens: list[int] = tokenizer.encode(placeholder, add_special_tokens=False)
    # Some models have no placeholder for chats. That of LLaVA is not in the tokenizer of models with Pixtral's tower.
    if dummy and not {*tokens}.intersection(tokenizer.get_added_vocab().values()):
        tokens = tokenizer.encode(dummy, add_special_tokens=False)
    return tokens


def apply_processor(
    processor: Any,
    tokens: Sequence[int],
    media: Mapping[Modality, Sequence[object]],
    identifiers: Mapping[Modality, Sequence[str]],
    cache: ItemCache,
    arguments: Mapping[str, Any],
) -> MultiModalInput:
    """Returns the engine's input for a prompt and its media, or for media in the cache. Blocks."""
    # An engine without the encoder of a modality has the limit 0 for its media.
    items = processor.info.parse_mm_data(media, validate=False)
    uuids = parse_mm_uuids(identifiers)
    inputs = ProcessorInputs([*tokens], items, uuids, hf_processor_mm_kwargs=arguments, cache=cache)
    return processor.apply(inputs, TimingContext(enabled=False))


def _nbytes(data: object) -> int:
    """Returns the bytes of the tensors of an input of a model, and 8 for each number."""
    if isinstance(data, torch.Tensor):
        return int(data.nbytes)
    return sum(map(_nbytes, data)) if isinstance(data, list | tuple) else 8
