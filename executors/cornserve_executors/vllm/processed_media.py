"""Media that vLLM's processor has processed, as data that encoders send to language models, and in prompts.

The processor treats each medium by itself. Its cache has an entry for each: the inputs of the model, and the changes of
the prompt. An encoder records the entry of a medium, and sends its changes and its small inputs, such as grids. A
language model gives the entries of all media to its own processor in place of the media.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import vllm
from pydantic import ConfigDict, TypeAdapter, ValidationError
from vllm.inputs.engine import MultiModalInput
from vllm.model_executor.model_loader import get_model_cls
from vllm.multimodal.cache import BaseMultiModalProcessorCache
from vllm.multimodal.inputs import MultiModalBatchedField, MultiModalFieldElem, MultiModalKwargsItem
from vllm.multimodal.parse import parse_mm_uuids
from vllm.multimodal.processing import PromptUpdateDetails
from vllm.multimodal.processing.context import TimingContext
from vllm.multimodal.processing.inputs import ProcessorInputs
from vllm.multimodal.processing.processor import ResolvedPromptUpdate, UpdateMode
from vllm.utils.cache import CacheInfo

from cornserve_tasklib.media import MediaField, MediaTensor, Modality, PromptUpdate, PromptUpdates

_FIELD = TypeAdapter[MediaField](MediaField, config=ConfigDict(strict=True))

MAX_FIELD_BYTES = 16 << 10
"""The size of the largest input that is sent. Larger ones are pixels, which only the encoder needs."""

PATCH_BYTES = 3 * 14 * 14 * 4
"""Bytes of the pixels of a patch in float32."""

Entry = tuple[MultiModalKwargsItem, Sequence[ResolvedPromptUpdate]]
"""An entry of the processor's cache."""


class UnsendableItemError(ValueError):
    """A processed medium cannot be described as data. The message is the reason, for users."""


class OtherProcessorError(Exception):
    """A described medium does not fit this model or this version of vLLM. The message is the reason, for users."""


class _ItemCache(BaseMultiModalProcessorCache):  # type: ignore[misc]
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


class MissingMarkerError(ValueError):
    """A prompt lacks the marker of a medium."""


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

    def describe(self) -> tuple[dict[str, MediaField], PromptUpdates]:
        """Returns the small inputs of the model, and the changes of the prompt. Raises `UnsendableItemError`."""
        small = {name: field.data for name, field in self.item.items() if _nbytes(field.data) <= MAX_FIELD_BYTES}
        fields = {name: _field(name, value) for name, value in small.items()}
        return fields, PromptUpdates(vllm_version=vllm.__version__, updates=[*map(_describe_update, self.updates)])

    @classmethod
    def from_description(
        cls, modality: Modality, fields: Mapping[str, MediaField], prompt: PromptUpdates
    ) -> ProcessedMedium:
        """Raises `OtherProcessorError` if another version of vLLM has processed the medium."""
        if prompt.vllm_version != vllm.__version__:
            raise OtherProcessorError(
                f"the encoder has vLLM {prompt.vllm_version}, this executor has vLLM {vllm.__version__}"
            )
        item = kwargs_item({name: _data(value) for name, value in fields.items()})
        return cls(modality, item, [_update(modality, update) for update in prompt.updates])


@dataclass(frozen=True, slots=True)
class PromptMedium:
    """A medium of a prompt."""

    identifier: str
    """Identifies the contents. vLLM assumes that media with equal identifiers are equal."""
    processed: ProcessedMedium


def process_medium(
    processor: Any, marker: Sequence[int], modality: Modality, medium: object, arguments: Mapping[str, Any]
) -> ProcessedMedium:
    """Processes a decoded medium alone. Blocks. Raises `ValueError` if the processor rejects it.

    Args:
        marker: the prompt of a medium alone, before processing.
        arguments: vLLM's `mm_processor_kwargs`.
    """
    cache = _ItemCache({})
    _apply(processor, marker, {modality: [medium]}, {modality: ["medium"]}, cache, arguments)
    ((item, updates),) = cache.recorded
    return ProcessedMedium(modality, item, updates)


def assemble_prompt(processor: Any, tokens: Sequence[int], media: Sequence[PromptMedium]) -> MultiModalInput:
    """Returns the engine's input: replaces the marker of each medium in the tokens of a rendered chat. Blocks.

    Media of one modality are in order. Chat templates may move the media of one modality before another's.

    Raises:
        MissingMarkerError: a marker is missing.
    """
    identifiers: dict[Modality, list[str]] = defaultdict(list)
    for medium in media:
        identifiers[medium.processed.modality].append(medium.identifier)
    known = {medium.identifier: (medium.processed.item, medium.processed.updates) for medium in media}
    nothing = {modality: [None] * len(found) for modality, found in identifiers.items()}
    try:
        return _apply(processor, tokens, nothing, identifiers, _ItemCache(known), {})
    except (AssertionError, RuntimeError, ValueError) as error:  # An AssertionError if a marker is missing.
        raise MissingMarkerError(str(error)) from error


def medium_marker(model_config: Any, processor: Any, tokenizer: Any, modality: Modality) -> list[int]:
    """Returns the tokens of the prompt of a medium alone, before processing."""
    # Models without a placeholder for chats have a dummy text.
    text = get_model_cls(model_config).get_placeholder_str(modality, 1) or processor.dummy_inputs.get_dummy_text(
        {modality: 1}
    )
    tokens: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return tokens


def kwargs_item(fields: Mapping[str, Any]) -> MultiModalKwargsItem:
    """Returns the inputs of the model for one medium, by name."""
    batched = MultiModalBatchedField(keep_on_cpu=True)
    inputs = fields or {"empty": torch.zeros(1)}  # vLLM ignores items without fields.
    return MultiModalKwargsItem({name: MultiModalFieldElem(data=data, field=batched) for name, data in inputs.items()})


def _apply(
    processor: Any,
    tokens: Sequence[int],
    media: Mapping[Modality, Sequence[object]],
    identifiers: Mapping[Modality, Sequence[str]],
    cache: _ItemCache,
    arguments: Mapping[str, Any],
) -> MultiModalInput:
    # An engine without the encoder of a modality has the limit 0 for its media.
    items = processor.info.parse_mm_data(media, validate=False)
    uuids = parse_mm_uuids(identifiers)
    inputs = ProcessorInputs([*tokens], items, uuids, hf_processor_mm_kwargs=arguments, cache=cache)
    return processor.apply(inputs, TimingContext(enabled=False))


def _nbytes(data: object) -> int:
    if isinstance(data, torch.Tensor):
        return int(data.nbytes)
    return sum(map(_nbytes, data)) if isinstance(data, list | tuple) else 8


def _field(name: str, data: object) -> MediaField:
    if isinstance(data, torch.Tensor):
        values = data.flatten().tolist()
        numbers = [int(value) for value in values] if data.dtype is torch.bool else values
        return MediaTensor(dtype=str(data.dtype).removeprefix("torch."), shape=[*data.shape], values=numbers)
    try:
        return _FIELD.validate_python(data)
    except ValidationError as error:
        raise UnsendableItemError(f"the input {name} of the model has the type {type(data).__name__}") from error


def _data(field: MediaField) -> object:
    if not isinstance(field, MediaTensor):
        return field
    return torch.tensor(field.values, dtype=getattr(torch, field.dtype)).reshape(field.shape)


def _describe_update(update: ResolvedPromptUpdate) -> PromptUpdate:
    tokens, mask = update.content.full, update.content.is_embed
    return PromptUpdate(
        mode=update.mode.value,
        target=update.target if isinstance(update.target, list) else None,
        tokens=tokens,
        embedded=None if mask is None else _runs(mask(tokens).tolist()),
    )


def _update(modality: Modality, update: PromptUpdate) -> ResolvedPromptUpdate:
    mask = None if update.embedded is None else torch.tensor(_mask(update.embedded), dtype=torch.bool)
    details = PromptUpdateDetails(update.tokens, None if mask is None else lambda _: mask)
    return ResolvedPromptUpdate(modality, 0, UpdateMode(update.mode), update.target, details)


def _runs(mask: Iterable[bool]) -> list[int]:
    """Returns the lengths of runs of equal values. The first run, which may be empty, is false."""
    runs = [(value, sum(1 for _ in run)) for value, run in groupby(mask)]
    lengths = [length for _, length in runs]
    return [0, *lengths] if runs and runs[0][0] else lengths


def _mask(runs: Iterable[int]) -> list[bool]:
    return [bool(number % 2) for number, length in enumerate(runs) for _ in range(length)]
