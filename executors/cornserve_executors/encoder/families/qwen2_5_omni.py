"""Qwen2.5-Omni. The vision tower is that of Qwen2.5-VL. The audio tower processes windows of two seconds."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import numpy.typing as npt
import torch

from cornserve_executors.encoder.families.audio_family import AudioEncoderFamily, PreparedAudio
from cornserve_executors.encoder.families.family import EncodingPlan
from cornserve_executors.encoder.families.qwen2_5_vl import Qwen25VL
from cornserve_executors.encoder.families.thinker import ThinkerFamily


class Qwen25OmniVision(ThinkerFamily, Qwen25VL):
    pass


class Qwen25OmniAudio(ThinkerFamily, AudioEncoderFamily):
    submodules = frozenset({"audio_tower"})  # Includes the projector.

    @property
    def max_samples(self) -> int:
        return int(self.processor.n_samples)

    def plan(self, samples: int) -> EncodingPlan:
        frames = self._frames(samples)
        positions = (frames - 1) // 2 + 1  # after the second convolution, of stride 2
        rows = positions // 2  # after the pooling
        if rows < 1:
            raise ValueError(f"{samples} samples are too few")
        return EncodingPlan(positions, rows=rows, fields={"audio_feature_lengths": frames})

    def prepare(self, samples: npt.NDArray[np.float32]) -> torch.Tensor:
        features: torch.Tensor = self.processor(
            samples, sampling_rate=self.sample_rate, padding="max_length", truncation=True, return_tensors="pt"
        )["input_features"]
        return features[0, :, : self._frames(len(samples))]

    def encode(self, audios: Sequence[PreparedAudio]) -> Sequence[torch.Tensor]:
        features = torch.cat([audio.features for audio in audios], dim=1).to(self.model.device, non_blocking=True)
        frames = torch.tensor([audio.features.shape[1] for audio in audios], device=self.model.device)
        output = self.model.audio_tower(features, feature_lens=frames).last_hidden_state
        rows: Sequence[torch.Tensor] = output.split([audio.plan.rows for audio in audios])
        return rows

    def _frames(self, samples: int) -> int:
        """Returns the number of feature frames that contain samples."""
        frames: int = ceil(min(samples, self.max_samples) / self.processor.hop_length)
        return frames
