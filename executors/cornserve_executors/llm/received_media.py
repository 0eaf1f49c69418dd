"""Media whose embeddings have been received from an encoder, as entries of vLLM's processor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from vllm.multimodal.inputs import MultiModalFieldElem, MultiModalKwargsItem, MultiModalSharedField
from vllm.multimodal.parse import AudioProcessorItems, MultiModalDataItems, VideoProcessorItems

from cornserve_executors.llm.prompt_media import PromptMedium
from cornserve_executors.vllm.media_metadata import restore_medium
from cornserve_executors.vllm.private_api import prompt_updates
from cornserve_executors.vllm.processed_media import ProcessedMedium
from cornserve_tasklib.media import EncodedMedia, Modality


def receive_medium(processor: Any, modality: Modality, encoded: EncodedMedia, hidden_size: int) -> ProcessedMedium:
    """Returns a received medium. Blocks.

    Args:
        hidden_size: the length of an embedding of the language model, of one level.

    Raises:
        OtherProcessorError: the encoder has another version of vLLM.
    """
    received = restore_medium(modality, encoded.fields, encoded.prompt)
    if all(update.target is not None for update in received.updates):
        return received
    # The processor determines the place, as of PaliGemma's images, for embeddings as for pixels.
    embeddings = torch.empty(encoded.rows, hidden_size, device="meta")
    media = processor.info.data_parser.parse_mm_data({modality: [embeddings]})
    (own,) = prompt_updates(processor, media, {}, {modality: [received.item]})[modality]
    updates = [replace(update, target=same.target) for update, same in zip(received.updates, own, strict=True)]
    return replace(received, updates=updates)


def add_sound(processor: Any, video: PromptMedium, sound: PromptMedium) -> PromptMedium:
    """Returns the video of a sound, whose tokens the model interleaves. Blocks."""
    # The processor counts these media, and reads the items.
    media = MultiModalDataItems({"video": VideoProcessorItems([None]), "audio": AudioProcessorItems([None])})
    flag = MultiModalFieldElem(data=torch.tensor(True), field=MultiModalSharedField(batch_size=1, keep_on_cpu=True))
    item = MultiModalKwargsItem({**video.processed.item, "use_audio_in_video": flag})
    items = {"video": [item], "audio": [sound.processed.item]}
    (updates,) = prompt_updates(processor, media, {"use_audio_in_video": True}, items)["video"]
    return replace(video, processed=replace(video.processed, item=item, updates=updates))
