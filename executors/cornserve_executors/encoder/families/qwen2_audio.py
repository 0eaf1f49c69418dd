"""Qwen2-Audio. The tower processes 30 seconds, whatever the duration; later samples are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import numpy.typing as npt
import torch

from cornserve_executors.encoder.families.audio_family import AudioEncoderFamily, PreparedAudio
from cornserve_executors.encoder.families.family import EncodingPlan


class Qwen2Audio(AudioEncoderFamily):
    submodules = frozenset({"audio_tower", "multi_modal_projector"})

    @property
    def max_samples(self) -> int:
        return int(self.processor.n_samples)

    def plan(self, samples: int) -> EncodingPlan:
        rows = _pooled(_halved(self._frames(samples)))
        if rows < 1:
            raise ValueError(f"{samples} samples are too few")
        positions = self.model.config.audio_config.max_source_positions
        return EncodingPlan(positions, rows=rows, fields={"audio_num_tokens": rows})

    def prepare(self, samples: npt.NDArray[np.float32]) -> torch.Tensor:
        features: torch.Tensor = self.processor(
            samples, sampling_rate=self.sample_rate, padding="max_length", truncation=True, return_tensors="pt"
        )["input_features"]
        return features

    def encode(self, audios: Sequence[PreparedAudio]) -> Sequence[torch.Tensor]:
        features = torch.cat([audio.features for audio in audios]).to(self.model.device, non_blocking=True)
        length = _halved(features.shape[-1])
        positions = torch.arange(length, device=self.model.device)
        used = torch.tensor([_halved(self._frames(audio.samples)) for audio in audios], device=self.model.device)
        padding = positions[None] >= used[:, None]
        mask = torch.zeros((len(audios), 1, length, length), dtype=self.model.dtype, device=self.model.device)
        mask.masked_fill_(padding[:, None, None], float("-inf"))
        output = self.model.audio_tower(features, attention_mask=mask).last_hidden_state
        rows = self.model.multi_modal_projector(output)
        return [encoded[: audio.plan.rows] for encoded, audio in zip(rows, audios, strict=True)]

    def _frames(self, samples: int) -> int:
        """Returns the number of feature frames that contain samples."""
        frames: int = ceil(min(samples, self.max_samples) / self.processor.hop_length)
        return frames


def _halved(frames: int) -> int:
    """Returns the positions after the tower's second convolution, of stride 2."""
    return (frames - 1) // 2 + 1


def _pooled(positions: int) -> int:
    """Returns the positions after the tower's pooling."""
    return (positions - 2) // 2 + 1
