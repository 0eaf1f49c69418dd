"""The part of Qwen's Omni models that reads media and writes text, the thinker. Other parts speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from transformers import AutoModelForImageTextToText
from transformers.image_utils import SizeDict
from transformers.processing_utils import ProcessingKwargs

from cornserve_executors.encoder.families.base_family import BaseFamily
from cornserve_executors.encoder.families.video_family import VideoEncoderFamily, VideoFrames
from cornserve_tasklib.media import MediaField


class ThinkerFamily(BaseFamily):
    """A family whose towers belong to the thinker."""

    @classmethod
    def build(cls, config: Any, dtype: torch.dtype) -> Any:
        return AutoModelForImageTextToText.from_config(config.thinker_config, dtype=dtype)


class ThinkerVideos(ThinkerFamily, VideoEncoderFamily):
    """A family whose videos have a size and a frame rate that transformers' processor of the thinker assumes.

    It does not use the frame rate of the video, and the size limits of the checkpoint's video processor only for videos
    with limits on pixels.
    """

    arguments: ClassVar[type[ProcessingKwargs]]
    """The arguments of the thinker's processor, with their defaults."""
    assumed_fps: ClassVar[float]
    """The frames per second to which positions in the language model refer."""

    def __init__(self, model: Any, processor: Any) -> None:
        super().__init__(model, processor)
        self._checkpoint_size: Mapping[str, int] = processor.size
        processor.size = SizeDict(**self.arguments._defaults["videos_kwargs"]["size"])

    @property
    def own_size(self) -> Mapping[str, int]:
        return self._checkpoint_size

    def time_fields(self, video: VideoFrames) -> dict[str, MediaField]:
        # vLLM requires the flag in videos of Qwen3-Omni.
        return {
            "second_per_grid_ts": self.processor.temporal_patch_size / self.assumed_fps,
            "use_audio_in_video": 0,
        }
