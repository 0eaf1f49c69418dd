"""Qwen2.5-Omni. The vision tower is that of Qwen2.5-VL. The audio tower processes windows of two seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import ceil

import numpy as np
import numpy.typing as npt
import torch
from transformers.models.qwen2_5_omni.processing_qwen2_5_omni import Qwen2_5OmniProcessorKwargs

from cornserve_executors.encoder.families.audio_family import AudioEncoderFamily, PreparedAudio
from cornserve_executors.encoder.families.family import EncodingPlan
from cornserve_executors.encoder.families.qwen2_5_vl import Qwen2VLVideos, Qwen25VL
from cornserve_executors.encoder.families.thinker import ThinkerFamily, ThinkerVideos


class Qwen25OmniVision(ThinkerFamily, Qwen25VL):
    pass


class Qwen25OmniVideos(ThinkerVideos, Qwen2VLVideos):
    arguments = Qwen2_5OmniProcessorKwargs
    assumed_fps = 2


class Qwen25OmniAudio(ThinkerFamily, AudioEncoderFamily):
    submodules = frozenset({"audio_tower"})  # Includes the projector.

    @property
    def max_samples(self) -> int:
        return sys.maxsize

    def plan(self, samples: int) -> EncodingPlan:
        frames = self._frames(samples)
        positions = (frames - 1) // 2 + 1  # after the second convolution, of stride 2
        rows = positions // 2  # after the pooling
        if rows < 1:
            raise ValueError(f"{samples} samples are too few")
        return EncodingPlan(positions, rows=rows, fields={"audio_feature_lengths": frames})

    def prepare(self, samples: npt.NDArray[np.float32]) -> torch.Tensor:
        features: torch.Tensor = self.processor(
            samples,
            sampling_rate=self.sample_rate,
            # vLLM pads to 300 seconds, which takes a quarter of a second, and drops no samples, unlike transformers.
            padding="max_length",
            max_length=min(len(samples) + self.processor.n_fft, self.processor.n_samples),
            truncation=False,
            return_tensors="pt",
        )["input_features"]
        return features[0, :, : self._frames(len(samples))]

    def encode(self, audios: Sequence[PreparedAudio]) -> Sequence[torch.Tensor]:
        features = torch.cat([audio.features for audio in audios], dim=1).to(self.model.device, non_blocking=True)
        frames = torch.tensor([audio.features.shape[1] for audio in audios], device=self.model.device)
        output = self.model.audio_tower(features, feature_lens=frames).last_hidden_state
        rows: Sequence[torch.Tensor] = output.split([audio.plan.rows for audio in audios])
        return rows

    def _frames(self, samples: int) -> int:
        """Returns the number of feature frames. The extractor completes the last one with padding, if there is any."""
        hop: int = self.processor.hop_length
        return samples // hop if samples > self.processor.n_samples else ceil(samples / hop)
