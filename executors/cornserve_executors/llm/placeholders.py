"""What stands for an image in a prompt, told by vLLM's own processor of the model."""

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

_NOTHING = MultiModalFieldElem(data=torch.zeros(1), field=MultiModalBatchedField(keep_on_cpu=True))
"""An item without any field is none to vLLM."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    identifier: str
    """Names the content: where two are equal, vLLM takes one image for the other."""
    mark: list[int]
    """By which the chat template shows the image."""
    tokens: list[int]
    """What the prompt has in its place."""
    is_embed: Any
    """Which of these tokens take an embedding, where not all do."""
    item: MultiModalKwargsItem
    """What the model is given of the image."""

    @property
    def rows(self) -> int:
        return len(self.tokens) if self.is_embed is None else int(self.is_embed.sum())


class PlaceholderRenderer:
    def __init__(self, model_config: Any, renderer: BaseRenderer) -> None:
        self._renderer = renderer
        self._width = model_config.get_inputs_embeds_size()
        self._fields = renderer.get_mm_processor().info.data_parser.placeholder_metadata_fields(IMAGE)
        shown = get_model_cls(model_config).get_placeholder_str(IMAGE, 1)
        self._shown: list[int] = renderer.get_tokenizer().encode(shown, add_special_tokens=False)

    async def raw(self, identifier: str, pixels: PIL.Image.Image) -> Placeholder:
        """Raises `ValueError` if the processor cannot make anything of it."""
        return await self._of(identifier, [pixels])

    async def encoded(self, identifier: str, image: EncodedImage) -> Placeholder:
        """From what its encoder says of it: from the fields that vLLM asks for, or else from its size."""
        data: object = {name: torch.tensor([image.fields[name]]) for name in self._fields} or [
            torch.empty(image.rows, self._width, device="meta")
        ]
        placeholder = await self._of(identifier, data)
        known = {name: field for name, field in placeholder.item.items() if not field.data.is_meta}
        return replace(placeholder, item=MultiModalKwargsItem(known or {"nothing": _NOTHING}))

    async def _of(self, identifier: str, data: object) -> Placeholder:
        """As the processor has it in a prompt that shows nothing else."""
        prompt = {
            "prompt_token_ids": self._shown,
            "multi_modal_data": {IMAGE: data},
            "multi_modal_uuids": {IMAGE: [identifier]},
        }
        rendered = await self._renderer.process_for_engine_async(prompt, time.time(), skip_mm_cache=True)
        (place,) = rendered["mm_placeholders"][IMAGE]
        (item,) = rendered["mm_kwargs"][IMAGE]
        tokens = rendered["prompt_token_ids"]
        end = place.offset + place.length
        # What surrounds a placeholder is the same before and after.
        mark = self._shown[place.offset : len(self._shown) - (len(tokens) - end)]
        return Placeholder(identifier, mark, tokens[place.offset : end], place.is_embed, item)


def assemble_prompt(shown: list[int], placeholders: Sequence[Placeholder]) -> MultiModalInput | None:
    """The prompt that has each image in the place of the next mark; None if there are not enough marks."""
    tokens: list[int] = []
    ranges: list[PlaceholderRange] = []
    at = 0
    for placeholder in placeholders:
        found = _find(shown, placeholder.mark, at)
        if found is None:
            return None
        tokens += shown[at:found]
        length = len(placeholder.tokens)
        ranges.append(PlaceholderRange(offset=len(tokens), length=length, is_embed=placeholder.is_embed))
        tokens += placeholder.tokens
        at = found + len(placeholder.mark)
    return mm_input(
        tokens + shown[at:],
        MultiModalKwargsItems({IMAGE: [placeholder.item for placeholder in placeholders]}),
        {IMAGE: [placeholder.identifier for placeholder in placeholders]},
        {IMAGE: ranges},
    )


def _find(tokens: list[int], mark: list[int], start: int) -> int | None:
    with suppress(ValueError):
        while True:
            start = tokens.index(mark[0], start)
            if tokens[start : start + len(mark)] == mark:
                return start
            start += 1
    return None
