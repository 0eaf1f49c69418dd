"""Decodes codes to samples, chunk by chunk, without seams."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Self

import torch
from transformers.cache_utils import DynamicCache
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav

from cornserve_executors.talker.checkpoint import SpeechCheckpoint
from cornserve_executors.talker.vocoder import FrameShape, Vocoder

MAX_CHUNK_FRAMES = 16

_KERNEL = 7
"""The kernel size of the convolutions of transformers' vocoder."""

_DILATIONS = (1, 3, 9)
"""The dilations of the residual units of each of its blocks."""


@dataclass(slots=True)
class Code2WavState:
    """The state of one speech between two chunks."""

    cache: DynamicCache
    hidden: torch.Tensor | None = None
    """The transformer's output for the last frames, of the shape [1, frames, width]."""


class Code2Wav(Vocoder[Code2WavState]):
    """The vocoder of a Qwen3-Omni with a state for each speech.

    The transformer keeps its cache. The convolutions run again on the earlier frames that they can see. Each transposed
    convolution looks one of its inputs ahead, so that the newest samples of a chunk come with the next chunk. The last
    of them do not exist, as in transformers' decoding of all frames at once.

    Args:
        module: transformers' `Qwen3OmniMoeCode2Wav`.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self.frame_samples = int(module.total_upsample)
        """The number of samples of a frame."""
        self._lookahead, self._context = self._reach(module.config)

    @classmethod
    def load(cls, config: Any, checkpoint: SpeechCheckpoint, device: str) -> Self:
        """Raises `ExecutorStartError` if the checkpoint is incomplete."""
        module = Qwen3OmniMoeCode2Wav._from_config(config.code2wav_config)
        # The vocoder is small, and lower precision is audible.
        return cls(checkpoint.fill(module, "code2wav.", device, torch.float32))

    @staticmethod
    def frame_shape(config: Any) -> FrameShape:
        vocoder = config.code2wav_config
        samples = prod((*vocoder.upsample_rates, *vocoder.upsampling_ratios))
        return FrameShape(config.talker_config.num_code_groups, samples)

    def _reach(self, config: Any) -> tuple[int, int]:
        """Returns the samples that a chunk delays, and the earlier frames that the convolutions see."""
        rate, frames, lookahead = 1, 0.0, 0
        for factor in config.upsampling_ratios:
            rate *= factor
            frames += (_KERNEL - 1) / rate
        frames += (_KERNEL - 1) / rate
        for factor in config.upsample_rates:
            lookahead += self.frame_samples // rate
            frames += 1 / rate
            rate *= factor
            frames += (_KERNEL - 1) * sum(_DILATIONS) / rate
        frames += (_KERNEL - 1) / rate
        return lookahead, int(frames) + 2

    def start(self, voice: str, seed: int) -> Code2WavState:
        return Code2WavState(DynamicCache(config=self._module.pre_transformer.config))

    def chunk_frames(self, decoded: int) -> int:
        return min(decoded + 1, MAX_CHUNK_FRAMES)

    def decode(self, state: Code2WavState, frames: torch.Tensor) -> torch.Tensor:
        module = self._module
        new = module.pre_transformer(
            inputs_embeds=module.code_embedding(frames[None] + module.code_offset).mean(1),
            past_key_values=state.cache,
            use_cache=True,
        ).last_hidden_state
        known = 0 if state.hidden is None else state.hidden.shape[1]
        hidden = new if state.hidden is None else torch.cat([state.hidden, new], 1)
        state.hidden = hidden[:, -self._context :]
        samples = self._convolve(hidden.permute(0, 2, 1))
        return samples[max(0, known * self.frame_samples - self._lookahead) :]

    def finish(self, state: Code2WavState) -> torch.Tensor:
        return torch.zeros(0)  # The last samples of transformers' decoding do not exist, either.

    def _convolve(self, hidden: torch.Tensor) -> torch.Tensor:
        for blocks in self._module.upsample:
            for block in blocks:
                hidden = block(hidden)
        for block in self._module.decoder:
            hidden = block(hidden)
        return hidden.clamp(-1, 1)[0, 0]
