"""The interface of a family of audio encoders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cornserve_executors.encoder.families.base_family import BaseFamily
from cornserve_executors.encoder.families.family import EncodingPlan


@dataclass(frozen=True, slots=True)
class PreparedAudio:
    """The input of the audio tower for one audio."""

    features: torch.Tensor
    """The features of the model's processor, on the host."""
    samples: int
    """The number of samples at the model's rate."""
    plan: EncodingPlan


class AudioEncoderFamily(BaseFamily):
    """Preprocesses and encodes audio for one model, exactly as transformers does."""

    @property
    def sample_rate(self) -> int:
        """The samples per second of the model's input."""
        return int(self.processor.sampling_rate)

    @property
    @abstractmethod
    def max_samples(self) -> int:
        """The samples that the model uses. Further samples change neither the plan nor the embeddings."""

    @abstractmethod
    def plan(self, samples: int) -> EncodingPlan:
        """Returns the plan for audio of this many samples, at `sample_rate`.

        Raises:
            ValueError: the model does not accept audio of this duration.
        """

    @abstractmethod
    def prepare(self, samples: npt.NDArray[np.float32]) -> torch.Tensor:
        """Returns the features that the model's processor produces, on the host. Blocks. Called in several threads.

        Args:
            samples: one channel at `sample_rate`.
        """

    @abstractmethod
    def encode(self, audios: Sequence[PreparedAudio]) -> Sequence[torch.Tensor]:
        """Returns the embeddings of each audio.

        Blocks, except that a GPU may still be computing when this returns.

        Returns:
            For each audio, a tensor of shape `(plan.rows, row_size)` on the model's device, in its dtype.

        Raises:
            torch.OutOfMemoryError: the batch does not fit into the device's memory.
        """
