"""Processed media as data, which encoders send to language models: the small inputs, and the changes of the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import torch
import vllm
from pydantic import ConfigDict, TypeAdapter, ValidationError
from vllm.multimodal.inputs import MultiModalBatchedField, MultiModalFieldElem, MultiModalKwargsItem
from vllm.multimodal.processing import PromptUpdateDetails
from vllm.multimodal.processing.processor import ResolvedPromptUpdate, UpdateMode

from cornserve_executors.vllm.processed_media import ProcessedMedium, nbytes
from cornserve_tasklib.media import MediaField, MediaTensor, Modality, PromptUpdate, PromptUpdates

MAX_FIELD_BYTES = 16 << 10
"""The size of the largest input that is sent. Larger ones are pixels, which only the encoder needs."""

_FIELD = TypeAdapter[MediaField](MediaField, config=ConfigDict(strict=True))


class UnsendableItemError(ValueError):
    """A processed medium cannot be described as data. The message is the reason, for users."""


class OtherProcessorError(Exception):
    """A described medium does not fit this model or this version of vLLM. The message is the reason, for users."""


def describe_medium(medium: ProcessedMedium) -> tuple[dict[str, MediaField], PromptUpdates]:
    """Returns the small inputs of the model, and the changes of the prompt. Raises `UnsendableItemError`."""
    small = {name: field.data for name, field in medium.item.items() if nbytes(field.data) <= MAX_FIELD_BYTES}
    fields = {name: _field(name, value) for name, value in small.items()}
    return fields, PromptUpdates(vllm_version=vllm.__version__, updates=[*map(_describe_update, medium.updates)])


def restore_medium(modality: Modality, fields: Mapping[str, MediaField], prompt: PromptUpdates) -> ProcessedMedium:
    """Returns a described medium, without its large inputs.

    Raises `OtherProcessorError` if another version of vLLM has processed it.
    """
    if prompt.vllm_version != vllm.__version__:
        raise OtherProcessorError(
            f"the encoder has vLLM {prompt.vllm_version}, this executor has vLLM {vllm.__version__}"
        )
    item = _kwargs_item({name: _data(value) for name, value in fields.items()})
    return ProcessedMedium(modality, item, [_update(modality, update) for update in prompt.updates])


def _kwargs_item(fields: Mapping[str, Any]) -> MultiModalKwargsItem:
    """Returns the inputs of the model for one medium, by name."""
    batched = MultiModalBatchedField(keep_on_cpu=True)
    inputs = fields or {"empty": torch.zeros(1)}  # vLLM ignores items without fields.
    return MultiModalKwargsItem({name: MultiModalFieldElem(data=data, field=batched) for name, data in inputs.items()})


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
        tokens=_token_runs(tokens),
        embedded=None if mask is None else _runs(mask(tokens).tolist()),
    )


def _update(modality: Modality, update: PromptUpdate) -> ResolvedPromptUpdate:
    mask = None if update.embedded is None else torch.tensor(_mask(update.embedded), dtype=torch.bool)
    tokens = [token for run in update.tokens for token in ([run] if isinstance(run, int) else [run[0]] * run[1])]
    details = PromptUpdateDetails(tokens, None if mask is None else lambda _: mask)
    return ResolvedPromptUpdate(modality, 0, UpdateMode(update.mode), update.target, details)


def _token_runs(tokens: Iterable[int]) -> list[int | tuple[int, int]]:
    """Returns tokens, with a pair for each run of equal ones: a long video has thousands of placeholders."""
    runs = [(token, sum(1 for _ in run)) for token, run in groupby(tokens)]
    return [token if length == 1 else (token, length) for token, length in runs]


def _runs(mask: Iterable[bool]) -> list[int]:
    """Returns the lengths of runs of equal values. The first run, which may be empty, is false."""
    runs = [(value, sum(1 for _ in run)) for value, run in groupby(mask)]
    lengths = [length for _, length in runs]
    return [0, *lengths] if runs and runs[0][0] else lengths


def _mask(runs: Iterable[int]) -> list[bool]:
    return [bool(number % 2) for number, length in enumerate(runs) for _ in range(length)]
