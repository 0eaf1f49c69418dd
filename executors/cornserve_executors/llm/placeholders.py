"""Computes the placeholders of media in a prompt, with vLLM's processor of the model."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from vllm.inputs.engine import MultiModalInput, mm_input
from vllm.multimodal.inputs import (
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    MultiModalSharedField,
    PlaceholderRange,
)
from vllm.multimodal.parse import AudioProcessorItems, ImageProcessorItems, MultiModalDataItems, VideoProcessorItems
from vllm.renderers import BaseRenderer

from cornserve_executors.vllm.processed_media import kwargs_item, medium_marker, process_description
from cornserve_tasklib.media import IMAGE_SIZE, EncodedMedia, MediaField, Modality, PromptUpdates


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The tokens that represent a medium in a prompt, and the medium's data."""

    modality: Modality

    identifier: str
    """Identifies the contents. vLLM assumes that media with equal identifiers are equal."""
    marker: list[int]
    """Tokens that the chat template renders for the medium."""
    tokens: list[int]
    """Tokens that replace the marker in the prompt."""
    is_embed: Any
    """A mask of the tokens that an embedding replaces, or None for all tokens."""
    item: MultiModalKwargsItem
    """The medium's input to the model."""
    sound: Placeholder | None = None
    """The sound of a video, which has the same tokens."""

    @property
    def parts(self) -> list[Placeholder]:
        return [self] if self.sound is None else [self, self.sound]

    @property
    def rows(self) -> int:
        return len(self.tokens) if self.is_embed is None else int(self.is_embed.sum())

    @property
    def embedded(self) -> slice:
        """The tokens from the first to the last that an embedding replaces."""
        if self.is_embed is None:
            return slice(0, len(self.tokens))
        is_embed = self.is_embed if self.sound is None else self.is_embed | self.sound.is_embed
        positions = is_embed.nonzero()
        return slice(int(positions[0]), int(positions[-1]) + 1)


class PlaceholderRenderer:
    """Computes the placeholders of one modality."""

    def __init__(self, model_config: Any, renderer: BaseRenderer, modality: Modality) -> None:
        self._modality = modality
        self._renderer = renderer
        self._width = model_config.get_inputs_embeds_size()
        processor = renderer.get_mm_processor()
        self._fields = processor.info.data_parser.placeholder_metadata_fields(modality)
        self._unprocessed = medium_marker(model_config, processor, renderer.get_tokenizer(), modality)
        """The prompt of a medium alone, before processing."""

    async def from_decoded(self, identifier: str, medium: object, arguments: Mapping[str, Any]) -> Placeholder:
        """Returns the placeholder of a decoded medium. Raises `ValueError` if the processor rejects it.

        Args:
            arguments: vLLM's `mm_processor_kwargs`.
        """
        return await self._process(identifier, [medium], arguments)

    async def from_encoded(self, identifier: str, medium: EncodedMedia) -> Placeholder:
        """Returns the placeholder of an encoded medium.

        Raises `KeyError` if the encoder did not send a field that vLLM requires for the model, and
        `OtherProcessorError`.
        """
        if medium.prompt is not None:
            return await asyncio.to_thread(self._from_description, identifier, medium.fields, medium.prompt)
        if not self._fields:
            return self._from_fields(identifier, medium)
        required = {name: medium.fields[name] for name in self._fields}
        data = {name: _batch_of_one(value) for name, value in {**required, **medium.fields}.items()}
        return await self._process(identifier, data)

    def with_sound(self, video: Placeholder, sound: Placeholder) -> Placeholder:
        """Returns the placeholder of a video with its sound, whose tokens the model interleaves. Blocks."""
        processor = self._renderer.get_mm_processor()
        flag = MultiModalFieldElem(data=torch.tensor(True), field=MultiModalSharedField(batch_size=1, keep_on_cpu=True))
        item = MultiModalKwargsItem({**video.item, "use_audio_in_video": flag})
        # The processor counts these items, and reads the fields of those below.
        counted = MultiModalDataItems({"video": VideoProcessorItems([None]), "audio": AudioProcessorItems([None])})
        processed = MultiModalKwargsItems({"video": [item], "audio": [sound.item]})
        updates = processor._get_mm_prompt_updates(counted, {"use_audio_in_video": True}, processed)
        tokens, found = processor._apply_prompt_updates(self._unprocessed, {"video": updates["video"]})
        both = processor._derive_audio_from_video_placeholders(found, updates)
        ((of_video,), (of_sound,)) = both["video"], both["audio"]
        joined = self._placeholder(video.identifier, tokens, of_video.to_range(), item)
        return replace(joined, sound=replace(sound, tokens=joined.tokens, is_embed=of_sound.is_embed))

    def _from_description(
        self, identifier: str, fields: Mapping[str, MediaField], prompt: PromptUpdates
    ) -> Placeholder:
        processor = self._renderer.get_mm_processor()
        processed = process_description(processor, self._unprocessed, self._modality, fields, prompt, identifier)
        (position,) = processed["mm_placeholders"][self._modality]
        (item,) = processed["mm_kwargs"][self._modality]
        return self._placeholder(identifier, processed["prompt_token_ids"], position, item)

    def _from_fields(self, identifier: str, medium: EncodedMedia) -> Placeholder:
        """Returns the placeholder for a model whose processor in vLLM does not declare the fields that it needs."""
        processor = self._renderer.get_mm_processor()
        if IMAGE_SIZE in medium.fields:  # The processor accepts no embeddings, only pixels.
            size: Any = medium.fields[IMAGE_SIZE]
            pixels = torch.empty(*size, 3, device="meta")
            items = MultiModalDataItems({self._modality: ImageProcessorItems([pixels])})
        else:
            embeddings = torch.empty(medium.rows, self._width, device="meta")
            items = processor.info.data_parser.parse_mm_data({self._modality: [embeddings]})
        fields = {name: torch.tensor(value) for name, value in medium.fields.items() if name != IMAGE_SIZE}
        item = kwargs_item(fields)
        updates = processor._get_mm_prompt_updates(items, {}, MultiModalKwargsItems({self._modality: [item]}))
        tokens, found = processor._apply_prompt_updates(self._unprocessed, updates)
        (position,) = found[self._modality]
        return self._placeholder(identifier, tokens, position.to_range(), item)

    async def _process(self, identifier: str, data: object, arguments: Mapping[str, Any] | None = None) -> Placeholder:
        """Runs the processor on a prompt that consists of the medium alone."""
        prompt = {
            "prompt_token_ids": self._unprocessed,
            "multi_modal_data": {self._modality: data},
            "multi_modal_uuids": {self._modality: [identifier]},
            "mm_processor_kwargs": arguments or {},
        }
        rendered = await self._renderer.process_for_engine_async(prompt, time.time(), skip_mm_cache=True)
        (position,) = rendered["mm_placeholders"][self._modality]
        (item,) = rendered["mm_kwargs"][self._modality]
        return self._placeholder(identifier, rendered["prompt_token_ids"], position, item)

    def _placeholder(
        self, identifier: str, tokens: list[int], position: PlaceholderRange, item: MultiModalKwargsItem
    ) -> Placeholder:
        end = position.offset + position.length
        # The tokens around the placeholder do not change.
        marker = self._unprocessed[position.offset : len(self._unprocessed) - (len(tokens) - end)]
        return Placeholder(self._modality, identifier, marker, tokens[position.offset : end], position.is_embed, item)


def assemble_prompt(
    rendered: list[int], placeholders: Sequence[Placeholder], merge: Callable[[list[int]], list[int]]
) -> MultiModalInput | None:
    """Replaces the markers in a rendered chat with placeholders. Returns None if a marker is missing.

    Placeholders of one modality are in order. Chat templates may move the media of one modality before another's.

    Args:
        merge: merges tokens of placeholders with those of the text next to them. Gemma 3 merges newlines.
    """
    tokens: list[int] = []
    items: dict[str, list[MultiModalKwargsItem]] = defaultdict(list)
    identifiers: dict[str, list[str]] = defaultdict(list)
    ranges: dict[str, list[PlaceholderRange]] = defaultdict(list)
    waiting: dict[str, deque[Placeholder]] = defaultdict(deque)
    for placeholder in placeholders:
        waiting[placeholder.modality].append(placeholder)
    text: list[int] = []
    position = 0
    for _ in placeholders:
        found = [(_find(rendered, queue[0].marker, position), queue) for queue in waiting.values() if queue]
        at, queue = min(found, key=lambda next_marker: len(rendered) if next_marker[0] is None else next_marker[0])
        if at is None:
            return None
        placeholder = queue.popleft()
        embedded = placeholder.embedded
        before = text + rendered[position:at] + placeholder.tokens[: embedded.start]
        merged = merge(before)
        if merged == before:
            # vLLM computes the positions of Qwen3-VL's videos from the start of the placeholder, which is a text.
            embedded = slice(0, embedded.stop)
            merged = text + rendered[position:at]
        tokens += merged
        for part in placeholder.parts:
            is_embed = None if part.is_embed is None else part.is_embed[embedded]
            items[part.modality].append(part.item)
            identifiers[part.modality].append(part.identifier)
            ranges[part.modality].append(
                PlaceholderRange(offset=len(tokens), length=embedded.stop - embedded.start, is_embed=is_embed)
            )
        tokens += placeholder.tokens[embedded]
        text = placeholder.tokens[embedded.stop :]
        position = at + len(placeholder.marker)
    return mm_input(tokens + merge(text + rendered[position:]), MultiModalKwargsItems(items), identifiers, ranges)


def _batch_of_one(value: MediaField) -> object:
    """Returns the value of a field in the form in which vLLM's processor returns it for a batch of one medium."""
    # Tensors would round the seconds of `timestamps`, which become a text.
    return [value] if isinstance(value, list) and isinstance(value[0], float) else torch.tensor([value])


def _find(tokens: list[int], marker: list[int], start: int) -> int | None:
    with suppress(ValueError):
        while True:
            start = tokens.index(marker[0], start)
            if tokens[start : start + len(marker)] == marker:
                return start
            start += 1
    return None
