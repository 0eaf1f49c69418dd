"""Qwen2-VL and Qwen2.5-VL. Images and videos keep their aspect ratio; the number of patches depends on their size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import ceil, prod
from typing import Any, Self

import PIL.Image
import torch
from transformers.image_utils import SizeDict
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from cornserve_executors.encoder.families.family import EncoderFamily, EncodingPlan, PreparedImage, VisionFamily
from cornserve_executors.encoder.families.video_family import VideoEncoderFamily, VideoFrames
from cornserve_executors.media.image_decoding import ImageSize
from cornserve_executors.media.size_limits import limited_size, refuse_other_sizes
from cornserve_executors.media.video_sampling import FrameSampling
from cornserve_tasklib.media import Media, MediaField
from cornserve_tasklib.media_options import PixelOptions


class Qwen25VLTower(VisionFamily):
    """The vision tower, to which a video is an image of several grids of patches. A batch may contain both."""

    submodules = frozenset({"visual"})  # Includes the projector, Qwen's merger.

    def for_media(self, media: Media) -> Self:
        refuse_other_sizes(media, PixelOptions)
        if not media.options.pixels:
            return self
        family = copy(self)
        family.processor = copy(self.processor)
        family.processor.size = SizeDict(**limited_size(self.own_size, media))
        return family

    @property
    def own_size(self) -> Mapping[str, int]:
        """The size of the processor to which limits on pixels apply."""
        size: Mapping[str, int] = self.processor.size
        return size

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        return split_rows(self.run_tower(images).pooler_output, images)

    def run_tower(self, images: Sequence[PreparedImage]) -> Any:
        """Returns the output of transformers' tower, whose tensors contain the rows of all images."""
        grids = torch.tensor([_grid(image.plan) for image in images], device=self.model.device)
        return self.model.visual(self.concatenate_on_device(images), grid_thw=grids)


class Qwen25VL(Qwen25VLTower, EncoderFamily):
    def plan(self, size: ImageSize) -> EncodingPlan:
        patch, merge = self.processor.patch_size, self.processor.merge_size
        height, width = smart_resize(
            size.height,
            size.width,
            factor=patch * merge,
            min_pixels=self.processor.size["shortest_edge"],
            max_pixels=self.processor.size["longest_edge"],
        )
        grid = [1, height // patch, width // patch]
        patches = grid[1] * grid[2]
        return EncodingPlan(patches, rows=patches // merge**2, fields={"image_grid_thw": grid})

    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self.processor(images=[image], return_tensors="pt")["pixel_values"]
        return pixels


class Qwen2VLVideos(Qwen25VLTower, VideoEncoderFamily):
    sampling = FrameSampling("qwen2_vl")

    def plan(self, video: VideoFrames) -> EncodingPlan:
        processor = self.processor
        patch, depth, frames = processor.patch_size, processor.temporal_patch_size, len(video.indices)
        # transformers' own code resizes frames without contents, and so finds their size.
        resized = processor.resize(
            torch.empty(1, frames, 3, video.height, video.width, dtype=torch.uint8, device="meta"),
            processor.size,
            processor.resample,
            factor=patch * processor.merge_size,
            temporal_factor=depth,
            cap_pixels_per_frame=processor.cap_pixels_per_frame,
        )
        grid = [ceil(frames / depth), resized.shape[-2] // patch, resized.shape[-1] // patch]
        patches = prod(grid)
        fields = {"video_grid_thw": grid, **self.time_fields(video)}
        return EncodingPlan(patches, rows=patches // processor.merge_size**2, fields=fields)

    def time_fields(self, video: VideoFrames) -> dict[str, MediaField]:
        """Returns the inputs of the language model that describe the times of the frames."""
        return {}

    def split(self, video: PreparedImage, max_patches: int) -> Sequence[PreparedImage]:
        """Splits a video between grids: attention does not cross them."""
        _, height, width = _grid(video.plan)
        grids = max(1, max_patches // (height * width))
        parts = video.pixels.split(grids * height * width)
        return [PreparedImage(pixels, self._part_plan(len(pixels), height, width)) for pixels in parts]

    def _part_plan(self, patches: int, height: int, width: int) -> EncodingPlan:
        grid = [patches // (height * width), height, width]
        return EncodingPlan(patches, rows=patches // self.processor.merge_size**2, fields={"video_grid_thw": grid})

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([*parts])


class Qwen25VLVideos(Qwen2VLVideos):
    """Positions in the language model depend on the rate of the sampled frames."""

    def time_fields(self, video: VideoFrames) -> dict[str, MediaField]:
        return {"second_per_grid_ts": self.processor.temporal_patch_size / video.sampled_fps}


def split_rows(rows: torch.Tensor, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
    """Returns the rows of each image."""
    parts: Sequence[torch.Tensor] = rows.split([image.plan.rows for image in images])
    return parts


def _grid(plan: EncodingPlan) -> Sequence[int]:
    """Returns the numbers of patches in time, height and width."""
    grid = plan.fields["video_grid_thw" if "video_grid_thw" in plan.fields else "image_grid_thw"]
    assert isinstance(grid, list)
    return [int(patches) for patches in grid]
