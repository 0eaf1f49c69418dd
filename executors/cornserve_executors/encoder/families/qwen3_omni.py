"""Qwen3-Omni. The vision tower is that of Qwen3-VL. The audio tower convolves each second apart."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers.models.qwen3_omni_moe.processing_qwen3_omni_moe import Qwen3OmniMoeProcessorKwargs

from cornserve_executors.encoder.families.audio_family import AudioEncoderFamily, PreparedAudio
from cornserve_executors.encoder.families.family import EncodingPlan
from cornserve_executors.encoder.families.qwen2_5_vl import Qwen2VLVideos
from cornserve_executors.encoder.families.qwen3_vl import Qwen3VL, Qwen3VLTower
from cornserve_executors.encoder.families.thinker import ThinkerFamily, ThinkerVideos


class Qwen3OmniVision(ThinkerFamily, Qwen3VL):
    pass


class Qwen3OmniVideos(ThinkerVideos, Qwen3VLTower, Qwen2VLVideos):
    """The frames are those of Qwen2-VL's loader, whose processor these models have."""

    arguments = Qwen3OmniMoeProcessorKwargs
    assumed_fps = 1


class Qwen3OmniAudio(ThinkerFamily, AudioEncoderFamily):
    submodules = frozenset({"audio_tower"})  # Includes the projector.

    @property
    def max_samples(self) -> int:
        return sys.maxsize

    @property
    def _window(self) -> int:
        """The feature frames that are convolved together."""
        return int(2 * self.model.config.audio_config.n_window)

    def plan(self, samples: int) -> EncodingPlan:
        frames = -(-samples // self.processor.hop_length)
        if frames * self.processor.hop_length <= self.processor.n_fft // 2:
            raise ValueError(f"{samples} samples are too few")
        windows, rest = divmod(frames, self._window)
        rows = windows * _convolved(self._window) + _convolved(rest)
        return EncodingPlan(rows, rows=rows, fields={"audio_feature_lengths": frames})

    def prepare(self, samples: npt.NDArray[np.float32]) -> torch.Tensor:
        # vLLM completes the last frame with zeros, unlike transformers, which drops it.
        padded = np.pad(samples, (0, -len(samples) % self.processor.hop_length))
        features: torch.Tensor = self.processor(
            padded, sampling_rate=self.sample_rate, padding=True, truncation=False, return_tensors="pt"
        )["input_features"]
        return features[0]

    def encode(self, audios: Sequence[PreparedAudio]) -> Sequence[torch.Tensor]:
        # The tower pads the windows of a batch to the longest one, which changes the last positions of shorter ones.
        # Batches of equal windows make the embeddings of an audio independent of the others.
        batches: dict[int, list[PreparedAudio]] = defaultdict(list)
        for audio in audios:
            batches[min(audio.features.shape[1], self._window)].append(audio)
        rows = {id(audio): encoded for batch in batches.values() for audio, encoded in self._encode_batch(batch)}
        return [rows[id(audio)] for audio in audios]

    def _encode_batch(self, audios: Sequence[PreparedAudio]) -> Sequence[tuple[PreparedAudio, torch.Tensor]]:
        features = torch.cat([audio.features for audio in audios], dim=1).to(self.model.device, non_blocking=True)
        frames = torch.tensor([audio.features.shape[1] for audio in audios], device=self.model.device)
        output = self.model.audio_tower(features, feature_lens=frames).last_hidden_state
        return list(zip(audios, output.split([audio.plan.rows for audio in audios]), strict=True))


def _convolved(frames: int) -> int:
    """Returns the positions after three convolutions of stride 2."""
    for _ in range(3):
        frames = (frames - 1) // 2 + 1
    return frames
