"""Processed media as data, which encoders send to language models: the small inputs, and the changes of the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

import torch
import vllm
from pydantic import ConfigDict, TypeAdapter, ValidationError
from vllm.multimodal.inputs import MultiModalBatchedField, MultiModalFieldElem, MultiModalKwargsItem
from vllm.multimodal.processing import PromptUpdateDetails
from vllm.multimodal.processing.processor import ResolvedPromptUpdate, UpdateMode

from cornserve_executors.vllm.processed_media import ProcessedMedium
from cornserve_tasklib.media import MediaField, MediaTensor, Modality, PromptUpdate, PromptUpdates

MAX_FIELD_VALUES = 512
"""The numbers in the largest input that is sent. Larger ones are pixels, features and masks for encoders."""

Value = TypeVar("Value")

_FIELD = TypeAdapter[MediaField](MediaField, config=ConfigDict(strict=True))


class UnsendableItemError(ValueError):
    """A processed medium cannot be described as data. The message is the reason, for users."""


class OtherProcessorError(Exception):
    """A described medium does not fit this model or this version of vLLM. The message is the reason, for users."""


def describe_medium(medium: ProcessedMedium) -> tuple[dict[str, MediaField], PromptUpdates]:
    """Returns the small inputs of the model, and the changes of the prompt. Raises `UnsendableItemError`."""
    small = {name: field.data for name, field in medium.item.items() if _values(field.data) <= MAX_FIELD_VALUES}
    fields = {name: _describe_field(name, value) for name, value in small.items()}
    return fields, PromptUpdates(vllm_version=vllm.__version__, updates=[*map(_describe_update, medium.updates)])


def restore_medium(modality: Modality, fields: Mapping[str, MediaField], prompt: PromptUpdates) -> ProcessedMedium:
    """Returns a described medium, without its large inputs.

    Raises `OtherProcessorError` if another version of vLLM has processed it.
    """
    if prompt.vllm_version != vllm.__version__:
        raise OtherProcessorError(
            f"the encoder has vLLM {prompt.vllm_version}, this executor has vLLM {vllm.__version__}"
        )
    item = _kwargs_item({name: _restore_field(value) for name, value in fields.items()})
    return ProcessedMedium(modality, item, [_restore_update(modality, update) for update in prompt.updates])


def _kwargs_item(fields: Mapping[str, Any]) -> MultiModalKwargsItem:
    """Returns the inputs of the model for one medium, by name."""
    batched = MultiModalBatchedField(keep_on_cpu=True)
    inputs = fields or {"empty": torch.zeros(1)}  # vLLM ignores items without fields.
    return MultiModalKwargsItem({name: MultiModalFieldElem(data=data, field=batched) for name, data in inputs.items()})


def _values(data: object) -> int:
    """Returns the number of numbers in an input of a model."""
    if isinstance(data, torch.Tensor):
        return int(data.numel())
    return sum(map(_values, data)) if isinstance(data, list | tuple) else 1


def _describe_field(name: str, data: object) -> MediaField:
    if isinstance(data, torch.Tensor):
        values = data.flatten().tolist()
        numbers = [int(value) for value in values] if data.dtype is torch.bool else values
        return MediaTensor(dtype=str(data.dtype).removeprefix("torch."), shape=[*data.shape], values=numbers)
    try:
        return _FIELD.validate_python(data)
    except ValidationError as error:
        raise UnsendableItemError(f"the input {name} of the model has the type {type(data).__name__}") from error


def _restore_field(field: MediaField) -> object:
    if not isinstance(field, MediaTensor):
        return field
    return torch.tensor(field.values, dtype=getattr(torch, field.dtype)).reshape(field.shape)


def _describe_update(update: ResolvedPromptUpdate) -> PromptUpdate:
    tokens, mask = update.content.full, update.content.is_embed
    return PromptUpdate(
        mode=update.mode.value,
        target=update.target if isinstance(update.target, list) else None,
        tokens=_token_runs(tokens),
        embedded=None if mask is None else _mask_runs(mask(tokens).tolist()),
    )


def _restore_update(modality: Modality, update: PromptUpdate) -> ResolvedPromptUpdate:
    tokens = [token for run in update.tokens for token in ([run] if isinstance(run, int) else [run[0]] * run[1])]
    mask = None
    if update.embedded is not None:
        if sum(update.embedded) != len(tokens):
            raise ValueError(f"{sum(update.embedded)} of {len(tokens)} tokens are described")
        mask = torch.tensor(_restore_mask(update.embedded), dtype=torch.bool)
    details = PromptUpdateDetails(tokens, None if mask is None else lambda _: mask)
    return ResolvedPromptUpdate(modality, 0, UpdateMode(update.mode), update.target, details)


def _token_runs(tokens: Iterable[int]) -> list[int | tuple[int, int]]:
    """Returns tokens, with a pair for each run of equal ones: a long video has thousands of placeholders."""
    return [token if length == 1 else (token, length) for token, length in _run_lengths(tokens)]


def _mask_runs(mask: Sequence[bool]) -> list[int]:
    """Returns the lengths of runs of equal values. The first run, which may be empty, is false."""
    lengths = [length for _, length in _run_lengths(mask)]
    return [0, *lengths] if mask and mask[0] else lengths


def _run_lengths(values: Iterable[Value]) -> list[tuple[Value, int]]:
    """Returns each run of equal values and its length."""
    return [(value, sum(1 for _ in run)) for value, run in groupby(values)]


def _restore_mask(runs: Iterable[int]) -> list[bool]:
    return [bool(number % 2) for number, length in enumerate(runs) for _ in range(length)]
