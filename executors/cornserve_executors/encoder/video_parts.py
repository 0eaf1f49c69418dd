"""Parts of long videos.

The models with videos in `ENCODER_MODALITIES` encode each frame, or each pair, independently of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from vllm.multimodal.inputs import MultiModalKwargsItem

from cornserve_executors.vllm.processed_media import ProcessedMedium

GRID = "video_grid_thw"
"""vLLM's name of the numbers of patches of a video in time, height and width."""

TILES = "video_num_patches"
"""vLLM's name of the number of tiles of a video: one for each frame."""

PIXELS = frozenset({"pixel_values_videos", "pixel_values_flat_video"})
"""vLLM's names of the pixels of a video, whose first dimension is the patches of a grid, or frames."""


def split_video(video: ProcessedMedium, max_patches: int) -> list[ProcessedMedium]:
    """Splits a video between frames.

    Args:
        max_patches: the number of patches of a part, unless a frame has more.
    """
    (pixels_name,) = PIXELS & video.item.keys()
    pixels = video.item[pixels_name].data
    assert isinstance(pixels, torch.Tensor)
    height, width = video.item[GRID].data[1:].tolist() if GRID in video.item else (1, 1)
    frames = len(pixels) // (height * width)
    frames_per_part = max(1, frames * max_patches // video.patches)

    def part(part_pixels: torch.Tensor) -> ProcessedMedium:
        count = len(part_pixels) // (height * width)
        changes = {pixels_name: part_pixels, GRID: torch.tensor([count, height, width]), TILES: torch.tensor(count)}
        fields = {
            field: replace(element, data=changes[field]) if field in changes else element
            for field, element in video.item.items()
        }
        return replace(video, item=MultiModalKwargsItem(fields))

    return [*map(part, pixels.split(frames_per_part * height * width))]


def join_rows(parts: Sequence[torch.Tensor], rows: int) -> torch.Tensor:
    """Returns the embeddings of a video, given those of its parts.

    LLaVA-OneVision appends rows to the frames of a video, and so to each part: those of all parts but the last are
    dropped.

    Args:
        rows: the number of embeddings of the video.
    """
    appended = (sum(map(len, parts)) - rows) // (len(parts) - 1)
    *others, last = parts
    return torch.cat([*(part[: len(part) - appended] for part in others), last])
