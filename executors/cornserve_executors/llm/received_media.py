"""Media whose embeddings have been received from an encoder, as entries of vLLM's processor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from vllm.multimodal.inputs import MultiModalFieldElem, MultiModalKwargsItem, MultiModalSharedField
from vllm.multimodal.parse import AudioProcessorItems, ImageProcessorItems, MultiModalDataItems, VideoProcessorItems

from cornserve_executors.vllm.private_api import prompt_updates
from cornserve_executors.vllm.processed_media import OtherProcessorError, ProcessedMedium, PromptMedium, kwargs_item
from cornserve_tasklib.media import EncodedMedia, MediaField, Modality

_ITEMS = {"image": ImageProcessorItems, "video": VideoProcessorItems, "audio": AudioProcessorItems}


def receive_medium(processor: Any, modality: Modality, encoded: EncodedMedia, hidden_size: int) -> ProcessedMedium:
    """Returns a received medium.

    Args:
        hidden_size: the length of an embedding of the language model, of one level.

    Raises:
        OtherProcessorError: the encoder has another model, or another version of vLLM.
    """
    if encoded.prompt is not None:
        return ProcessedMedium.from_description(modality, encoded.fields, encoded.prompt)
    required = processor.info.data_parser.placeholder_metadata_fields(modality)
    missing = [name for name in required if name not in encoded.fields]
    if missing:
        raise OtherProcessorError(f"the encoder did not send the field {missing[0]}")
    if required:
        media = MultiModalDataItems({modality: _ITEMS[modality]([None])})
    else:  # The processor counts the embeddings, as for videos of LLaVA-OneVision.
        embeddings = torch.empty(encoded.rows, hidden_size, device="meta")
        media = processor.info.data_parser.parse_mm_data({modality: [embeddings]})
    item = kwargs_item({name: _tensor(name, value) for name, value in encoded.fields.items()})
    (updates,) = prompt_updates(processor, media, {}, {modality: [item]})[modality]
    return ProcessedMedium(modality, item, updates)


def add_sound(processor: Any, video: PromptMedium, sound: PromptMedium) -> PromptMedium:
    """Returns the video of a sound, whose tokens the model interleaves. Blocks."""
    # The processor counts these media, and reads the items.
    media = MultiModalDataItems({"video": VideoProcessorItems([None]), "audio": AudioProcessorItems([None])})
    flag = MultiModalFieldElem(data=torch.tensor(True), field=MultiModalSharedField(batch_size=1, keep_on_cpu=True))
    item = MultiModalKwargsItem({**video.processed.item, "use_audio_in_video": flag})
    items = {"video": [item], "audio": [sound.processed.item]}
    (updates,) = prompt_updates(processor, media, {"use_audio_in_video": True}, items)["video"]
    return replace(video, processed=replace(video.processed, item=item, updates=updates))


def _tensor(name: str, value: MediaField) -> object:
    # A tensor would round these seconds, which become a text.
    return value if name == "timestamps" else torch.tensor(value)
