"""Chooses the frames of a video that a model reads: the same as vLLM's video loaders."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from cornserve_executors.media.errors import UnsupportedOptionError
from cornserve_tasklib.media_options import MAX_FPS, MAX_FRAMES, MediaOptions

_OPTIONS = {
    "opencv": {"fps", "num_frames"},
    "qwen2_vl": {"fps", "num_frames", "min_frames", "max_frames"},
    "qwen3_vl": {"fps", "num_frames", "min_frames", "max_frames"},
}
"""The options of a request that each loader accepts. vLLM ignores the others, and `num_frames` in Qwen's loaders."""


class VideoSource(NamedTuple):
    """The properties of a video by which frames are chosen. vLLM's `VideoSourceMetadata` has the same fields."""

    total_frames_num: int
    original_fps: float
    duration: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class FrameSampling:
    """vLLM's options of `media_io_kwargs` for videos, with vLLM's defaults."""

    video_backend: Literal["opencv", "qwen2_vl", "qwen3_vl"] = "opencv"
    """vLLM's name of the loader. "opencv" samples uniformly; the others as transformers' processors of these models."""
    num_frames: int = 32
    """The largest number of frames; -1: no limit. Only for "opencv"."""
    fps: float | None = None
    """Frames per second, -1: all. By default, all for "opencv", and 2 for the others."""
    min_frames: int = 4
    """The smallest number of frames, if the video has them. Only for "qwen2_vl" and "qwen3_vl"."""
    max_frames: int = MAX_FRAMES
    """The largest number of frames. Only for "qwen2_vl" and "qwen3_vl"."""
    temporal_patch_size: int = 2
    """The number of frames is a multiple of this. Only for "qwen2_vl"."""

    def with_options(self, options: MediaOptions) -> FrameSampling:
        """Returns a copy with the options of a request. Raises `UnsupportedOptionError`."""
        known = _OPTIONS[self.video_backend]
        for name in options.frames:
            if name not in known:
                raise UnsupportedOptionError(
                    f"media_io_kwargs.video.{name}: the model does not have this option: use {', '.join(sorted(known))}"
                )
        changes: dict[str, Any] = {**options.frames}
        return replace(self, **changes)

    def frame_indices(self, source: VideoSource) -> list[int]:
        """Returns the indices of the chosen frames, ascending. Raises `ValueError` for videos without a frame rate."""
        return sorted(set(self._choose(source)))

    def _choose(self, source: VideoSource) -> list[int]:
        match self.video_backend:
            case "opencv":
                return self._uniform(source)
            case "qwen2_vl":
                return self._qwen2_vl(source)
            case "qwen3_vl":
                return self._qwen3_vl(source)

    def _uniform(self, source: VideoSource) -> list[int]:
        total, fps = source.total_frames_num, -1 if self.fps is None else self.fps
        count = min(self.num_frames, total) if self.num_frames > 0 else total
        if fps > 0:
            count = min(count, math.floor(source.duration * fps))
        return _integers(np.linspace(0, total - 1, max(1, count), dtype=int))

    def _qwen2_vl(self, source: VideoSource) -> list[int]:
        import torch

        total, patch = source.total_frames_num, self.temporal_patch_size
        if total < patch:
            return list(range(total))  # The processor repeats the last frame.
        largest = min(self.max_frames, MAX_FRAMES, total) // patch * patch
        wanted = total / _known_fps(source) * min(self._target_fps, MAX_FPS)
        count = math.floor(min(max(wanted, self.min_frames), largest) / patch) * patch
        # transformers computes the indices in float32.
        indices = torch.arange(0, total, total / count).int()
        return _integers(torch.clamp(indices, max=total - 1))

    def _qwen3_vl(self, source: VideoSource) -> list[int]:
        total, fps = source.total_frames_num, source.original_fps or 24.0
        wanted = int(total / fps * min(self._target_fps, MAX_FPS))
        count = min(max(wanted, self.min_frames), self.max_frames, MAX_FRAMES, total)
        return _integers(np.linspace(0, total - 1, count).round().astype(int))

    @property
    def _target_fps(self) -> float:
        return 2 if self.fps is None else self.fps


def _known_fps(source: VideoSource) -> float:
    if source.original_fps <= 0:
        raise ValueError("the video has no frame rate, which this model needs")
    return source.original_fps


def _integers(indices: np.ndarray) -> list[int]:
    return [int(index) for index in indices]
