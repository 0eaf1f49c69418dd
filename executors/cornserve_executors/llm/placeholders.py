"""Computes the placeholders of images in a prompt, with vLLM's processor of the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import PIL.Image
import torch
from vllm.inputs.engine import MultiModalInput, mm_input
from vllm.model_executor.model_loader import get_model_cls
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
)
from vllm.renderers import BaseRenderer

from cornserve_tasklib.image import EncodedImage

IMAGE = "image"

_EMPTY_FIELD = MultiModalFieldElem(data=torch.zeros(1), field=MultiModalBatchedField(keep_on_cpu=True))
"""vLLM ignores items without fields."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The tokens that represent an image in a prompt, and the image's data."""

    identifier: str
    """Identifies the contents. vLLM assumes that images with equal identifiers are equal."""
    marker: list[int]
    """Tokens that the chat template renders for the image."""
    tokens: list[int]
    """Tokens that replace the marker in the prompt."""
    is_embed: Any
    """A mask of the tokens that an embedding replaces, or None for all tokens."""
    item: MultiModalKwargsItem
    """The image's input to the model."""

    @property
    def rows(self) -> int:
        return len(self.tokens) if self.is_embed is None else int(self.is_embed.sum())


class PlaceholderRenderer:
    def __init__(self, model_config: Any, renderer: BaseRenderer) -> None:
        self._renderer = renderer
        self._width = model_config.get_inputs_embeds_size()
        self._fields = renderer.get_mm_processor().info.data_parser.placeholder_metadata_fields(IMAGE)
        text = get_model_cls(model_config).get_placeholder_str(IMAGE, 1)
        self._unprocessed: list[int] = renderer.get_tokenizer().encode(text, add_special_tokens=False)
        """The prompt of an image alone, before processing."""

    async def from_pixels(self, identifier: str, pixels: PIL.Image.Image) -> Placeholder:
        """Returns the placeholder of a decoded image. Raises `ValueError` if the processor rejects the image."""
        return await self._process(identifier, [pixels])

    async def from_encoded(self, identifier: str, image: EncodedImage) -> Placeholder:
        """Returns the placeholder of an encoded image.

        Uses the fields that vLLM requires for the model or, if it requires none, the number of rows. Raises `KeyError`
        for a missing field.
        """
        data: object = {name: torch.tensor([image.fields[name]]) for name in self._fields} or [
            torch.empty(image.rows, self._width, device="meta")
        ]
        placeholder = await self._process(identifier, data)
        known = {name: field for name, field in placeholder.item.items() if not field.data.is_meta}
        return replace(placeholder, item=MultiModalKwargsItem(known or {"empty": _EMPTY_FIELD}))

    async def _process(self, identifier: str, data: object) -> Placeholder:
        """Runs the processor on a prompt that consists of the image alone."""
        prompt = {
            "prompt_token_ids": self._unprocessed,
            "multi_modal_data": {IMAGE: data},
            "multi_modal_uuids": {IMAGE: [identifier]},
        }
        rendered = await self._renderer.process_for_engine_async(prompt, time.time(), skip_mm_cache=True)
        (position,) = rendered["mm_placeholders"][IMAGE]
        (item,) = rendered["mm_kwargs"][IMAGE]
        tokens = rendered["prompt_token_ids"]
        end = position.offset + position.length
        # The tokens around the placeholder do not change.
        marker = self._unprocessed[position.offset : len(self._unprocessed) - (len(tokens) - end)]
        return Placeholder(identifier, marker, tokens[position.offset : end], position.is_embed, item)


def assemble_prompt(rendered: list[int], placeholders: Sequence[Placeholder]) -> MultiModalInput | None:
    """Replaces the markers in a rendered chat with placeholders, in order. Returns None if a marker is missing."""
    tokens: list[int] = []
    ranges: list[PlaceholderRange] = []
    position = 0
    for placeholder in placeholders:
        found = _find(rendered, placeholder.marker, position)
        if found is None:
            return None
        tokens += rendered[position:found]
        length = len(placeholder.tokens)
        ranges.append(PlaceholderRange(offset=len(tokens), length=length, is_embed=placeholder.is_embed))
        tokens += placeholder.tokens
        position = found + len(placeholder.marker)
    return mm_input(
        tokens + rendered[position:],
        MultiModalKwargsItems({IMAGE: [placeholder.item for placeholder in placeholders]}),
        {IMAGE: [placeholder.identifier for placeholder in placeholders]},
        {IMAGE: ranges},
    )


def _find(tokens: list[int], marker: list[int], start: int) -> int | None:
    with suppress(ValueError):
        while True:
            start = tokens.index(marker[0], start)
            if tokens[start : start + len(marker)] == marker:
                return start
            start += 1
    return None
