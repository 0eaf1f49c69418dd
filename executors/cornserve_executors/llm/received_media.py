"""Media whose embeddings have been received from an encoder, as entries of vLLM's processor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from vllm.multimodal.parse import AudioProcessorItems, ImageProcessorItems, MultiModalDataItems, VideoProcessorItems

from cornserve_executors.vllm.private_api import prompt_updates
from cornserve_executors.vllm.processed_media import ProcessedMedium, PromptMedium, kwargs_item, with_sound_flag
from cornserve_tasklib.media import EncodedMedia, MediaField, Modality

_ITEMS = {"image": ImageProcessorItems, "video": VideoProcessorItems, "audio": AudioProcessorItems}


def receive_medium(processor: Any, modality: Modality, encoded: EncodedMedia, hidden_size: int) -> ProcessedMedium:
    """Returns a received medium.

    Args:
        hidden_size: the length of an embedding of the language model, of one level.

    Raises:
        KeyError: the encoder did not send a field that vLLM requires for the model.
        OtherProcessorError: another version of vLLM has processed the medium.
    """
    if encoded.prompt is not None:
        return ProcessedMedium.from_description(modality, encoded.fields, encoded.prompt)
    required = processor.info.data_parser.placeholder_metadata_fields(modality)
    fields = {name: encoded.fields[name] for name in required} | dict(encoded.fields)
    if required:
        media = MultiModalDataItems({modality: _ITEMS[modality]([None])})
    else:
        embeddings = torch.empty(encoded.rows, hidden_size, device="meta")
        media = processor.info.data_parser.parse_mm_data({modality: [embeddings]})
    item = kwargs_item({name: _data(value) for name, value in fields.items()})
    (updates,) = prompt_updates(processor, media, {}, {modality: [item]})[modality]
    return ProcessedMedium(modality, item, updates)


def add_sound(processor: Any, video: PromptMedium, sound: PromptMedium) -> PromptMedium:
    """Returns the video with its sound, whose tokens the model interleaves. Blocks."""
    # The processor counts these media, and reads the items.
    media = MultiModalDataItems({"video": VideoProcessorItems([None]), "audio": AudioProcessorItems([None])})
    items = {"video": [with_sound_flag(video.processed.item)], "audio": [sound.processed.item]}
    (updates,) = prompt_updates(processor, media, {"use_audio_in_video": True}, items)["video"]
    return replace(video, processed=replace(video.processed, updates=updates), sound=sound)


def _data(value: MediaField) -> object:
    # Tensors would round the seconds of `timestamps`, which become a text.
    return value if isinstance(value, list) and isinstance(value[0], float) else torch.tensor(value)
