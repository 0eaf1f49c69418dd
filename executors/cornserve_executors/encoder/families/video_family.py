"""The interface of a family of video encoders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from cornserve_executors.encoder.families.family import EncodingPlan, PreparedImage, VisionFamily
from cornserve_executors.media.video_sampling import FrameSampling, VideoSource


@dataclass(frozen=True, slots=True)
class VideoFrames:
    """The size and the times of the frames that are sampled from a video."""

    indices: Sequence[int]
    """The sampled frames, by their position in the video."""
    height: int
    width: int
    source: VideoSource

    @property
    def fps(self) -> float:
        """The frames per second of the video. Raises `ValueError` if they are unknown."""
        if self.source.original_fps <= 0:
            raise ValueError("the video has no frame rate")
        return self.source.original_fps

    @property
    def sampled_fps(self) -> float:
        """The sampled frames per second, as in transformers' `VideoMetadata`."""
        return len(self.indices) / self.source.total_frames_num * self.fps


class VideoEncoderFamily(VisionFamily):
    """Preprocesses and encodes videos for one model, exactly as transformers does.

    A family with the same method `encode` as the model's image family shares batches with it.
    """

    sampling: ClassVar[FrameSampling]
    """Chooses the same frames as vLLM's loader for the model."""

    @abstractmethod
    def plan(self, video: VideoFrames) -> EncodingPlan:
        """Returns the plan for a video.

        Raises:
            ValueError: the model does not accept videos of this shape.
        """

    @abstractmethod
    def split(self, video: PreparedImage, max_patches: int) -> Sequence[PreparedImage]:
        """Splits a video into parts that are encoded independently of each other.

        Args:
            max_patches: the number of patches of a part, unless fewer frames are not possible.
        """

    @abstractmethod
    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the embeddings of a video, given those of its parts."""

    def prepare(self, frames: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Returns the pixels that the model's video processor produces, on the host. Blocks. Called in several threads.

        Args:
            frames: the sampled frames in RGB, of the shape [frames, height, width, 3].
        """
        pixels: torch.Tensor = self.processor(
            videos=[frames], do_sample_frames=False, input_data_format="channels_last", return_tensors="pt"
        )["pixel_values_videos"]
        return pixels
