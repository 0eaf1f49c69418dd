"""Decodes the codes of speeches to samples, chunk by chunk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

State = TypeVar("State")

MAX_CHUNK_FRAMES = 16


@dataclass(frozen=True, slots=True)
class FrameShape:
    """The sizes of a frame."""

    groups: int
    """The number of codes."""
    samples: int


class Vocoder(ABC, Generic[State]):
    """A vocoder with a state for each speech."""

    frame_samples: int
    """The number of samples of a frame."""
    output_samples: int = 1
    """The number of samples for which an element of the output's last dimension stands."""
    groups: int
    """The number of codes of a frame."""
    warm_up_frames: int = 1
    """The number of frames after which all CUDA graphs have been captured, or 1 without graphs."""

    @property
    def captured_graphs(self) -> int:
        """The number of captured CUDA graphs."""
        return 0

    def warm_up(self, voice: str, device: str) -> None:
        """Decodes a few frames, so that torch completes its lazy initialization. Captures the CUDA graphs."""
        state, decoded = self.start(voice, seed=0), 0
        while decoded < self.warm_up_frames:
            frames = self.chunk_frames(decoded)
            self.decode(state, torch.zeros(self.groups, frames, dtype=torch.int64, device=device))
            decoded += frames
        self.finish(state)

    @abstractmethod
    def start(self, voice: str, seed: int) -> State:
        """Returns the state of a new speech."""

    def chunk_frames(self, decoded: int) -> int:
        """Returns the size of the next chunk, after a number of decoded frames. The first chunks are small, so that the
        first samples arrive early."""
        return min(decoded + 1, MAX_CHUNK_FRAMES)

    @abstractmethod
    def decode(self, state: State, frames: torch.Tensor) -> torch.Tensor:
        """Decodes the next frames of a speech.

        Args:
            frames: codes of the shape [groups, frames], at most `chunk_frames`.

        Returns samples from -1 to 1, of the shape [samples].
        """

    @abstractmethod
    def finish(self, state: State) -> torch.Tensor:
        """Returns the samples that have waited for further frames."""
