"""Codes in chunks, for a vocoder in another executor."""

from __future__ import annotations

import torch

from cornserve_executors.talker.vocoder import FrameShape, Vocoder


class CodeChunks(Vocoder[None]):
    """Takes the place of a vocoder, and returns codes, of the shape [groups, frames], in the place of samples."""

    def __init__(self, shape: FrameShape) -> None:
        self.frame_samples = self.output_samples = shape.samples
        self.groups = shape.groups

    def start(self, voice: str, seed: int) -> None:
        return None

    def decode(self, state: None, frames: torch.Tensor) -> torch.Tensor:
        return frames

    def finish(self, state: None) -> torch.Tensor:
        return torch.zeros(0)
