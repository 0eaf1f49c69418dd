"""Qwen3-VL. Further levels of the vision tower are added to the first layers of the language model (DeepStack)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cornserve_executors.encoder.families.family import PreparedImage
from cornserve_executors.encoder.families.qwen2_5_vl import Qwen2VLVideos, Qwen25VL, Qwen25VLTower, split_rows
from cornserve_executors.encoder.families.video_family import VideoFrames
from cornserve_executors.media.video_sampling import FrameSampling
from cornserve_tasklib.media import MediaField


class Qwen3VLTower(Qwen25VLTower):
    @property
    def row_size(self) -> int:
        return super().row_size * (1 + len(self.model.config.vision_config.deepstack_visual_indexes))

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        output = self.run_tower(images)
        return split_rows(torch.cat([output.pooler_output, *output.deepstack_features], dim=-1), images)


class Qwen3VL(Qwen3VLTower, Qwen25VL):
    pass


class Qwen3VLVideos(Qwen3VLTower, Qwen2VLVideos):
    """The times of the frames are texts in the prompt."""

    sampling = FrameSampling("qwen3_vl")

    def time_fields(self, video: VideoFrames) -> dict[str, MediaField]:
        """Returns the seconds of each grid of patches: the mean of its first and its last frame."""
        depth = self.processor.temporal_patch_size
        seconds = [index / video.fps for index in video.indices]
        groups = [seconds[start : start + depth] for start in range(0, len(seconds), depth)]
        # The processor repeats the last frame in an incomplete group.
        return {"timestamps": [(group[0] + group[-1]) / 2 for group in groups]}
