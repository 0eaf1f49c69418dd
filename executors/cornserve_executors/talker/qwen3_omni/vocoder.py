"""Decodes codes to samples, chunk by chunk, without seams."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Self

import torch
from torch.nn import functional
from transformers.cache_utils import Cache
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeCode2Wav

from cornserve_executors.talker.checkpoint import SpeechCheckpoint
from cornserve_executors.talker.graphs import GraphedFunction
from cornserve_executors.talker.vocoder import MAX_CHUNK_FRAMES, FrameShape, Vocoder

_KERNEL = 7
"""The kernel size of the convolutions of transformers' vocoder."""

_DILATIONS = (1, 3, 9)
"""The dilations of the residual units of each of its blocks."""


@dataclass(slots=True)
class Code2WavState:
    """The state of one speech between two chunks."""

    memory: torch.Tensor
    """The transformer's keys and values of the last frames, of the shape [layers, 2, heads, window, width]."""
    hidden: torch.Tensor
    """The transformer's output for the last frames, of the shape [1, frames, width]."""
    frames: int = 0
    """The number of decoded frames."""


class _WindowCache(Cache):  # type: ignore[misc]
    """Adds the keys and values of new frames to those of a window of earlier frames.

    Args:
        memory: see `Code2WavState`.
    """

    def __init__(self, memory: torch.Tensor) -> None:
        super().__init__(layers=[])
        self._memory = memory
        self._extended: list[torch.Tensor] = []

    @property
    def extended(self) -> torch.Tensor:
        """The memory with the new frames, after the pass through all layers."""
        return torch.stack(self._extended)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        extended = torch.cat([self._memory[layer_idx], torch.cat([key_states, value_states])], 2)
        self._extended.append(extended)
        return extended[:1], extended[1:]


class Code2Wav(Vocoder[Code2WavState]):
    """The vocoder of a Qwen3-Omni with a state for each speech.

    The transformer keeps the keys and values of its sliding window. The convolutions run again on the earlier frames
    that they can see. Each transposed convolution looks one of its inputs ahead, so that the newest samples of a chunk
    come with the next chunk. The last of them do not exist, as in transformers' decoding of all frames at once. The
    last chunk is padded to the size of the others, for which a CUDA graph exists.

    Args:
        module: transformers' `Qwen3OmniMoeCode2Wav`.
        enforce_eager: see `VocoderOptions`.
    """

    def __init__(self, module: Any, *, enforce_eager: bool = False) -> None:
        self._module = module
        self.frame_samples = int(module.total_upsample)
        self.groups = int(module.config.num_quantizers)
        self._lookahead, self._context = self._reach(module.config)
        self._window = module.config.sliding_window - 1
        """The number of earlier frames to which a frame attends."""
        self._decode = GraphedFunction(self._run_layers, enforce_eager=enforce_eager)
        if self._decode.captures:
            self.warm_up_frames = 2 * MAX_CHUNK_FRAMES - 1

    @property
    def captured_graphs(self) -> int:
        return self._decode.captured

    @classmethod
    def load(cls, config: Any, checkpoint: SpeechCheckpoint, device: str, *, enforce_eager: bool) -> Self:
        """Raises `ExecutorStartError` if the checkpoint is incomplete."""
        module = Qwen3OmniMoeCode2Wav._from_config(config.code2wav_config)
        # The vocoder is small, and lower precision is audible.
        module = checkpoint.fill(module, "code2wav.", device, torch.float32)
        return cls(module, enforce_eager=enforce_eager)

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
        config, weight = self._module.config, self._module.code_embedding.weight
        width = self._module.pre_transformer.layers[0].self_attn.head_dim
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, self._window, width)
        return Code2WavState(weight.new_zeros(shape), weight.new_zeros(1, 0, config.hidden_size))

    def decode(self, state: Code2WavState, frames: torch.Tensor) -> torch.Tensor:
        count, known = frames.shape[1], state.hidden.shape[1]
        codes = functional.pad(frames, (0, self.chunk_frames(state.frames) - count))
        start = torch.tensor(state.frames, device=frames.device)
        samples, memory, hidden = self._decode(codes, start, state.memory, state.hidden)
        state.memory = memory[..., count : count + self._window, :]
        state.hidden = hidden[:, : known + count][:, -self._context :]
        state.frames += count
        ready, end = (number * self.frame_samples - self._lookahead for number in (known, known + count))
        return samples[max(0, ready) : end]

    def finish(self, state: Code2WavState) -> torch.Tensor:
        return torch.zeros(0)  # The last samples of transformers' decoding do not exist, either.

    def _run_layers(
        self, codes: torch.Tensor, start: torch.Tensor, memory: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns samples, and the state of a speech with new frames.

        Args:
            codes: the new frames, of the shape [groups, frames].
            start: the number of earlier frames.
            memory, hidden: see `Code2WavState`.
        """
        module = self._module
        cache, positions = _WindowCache(memory), start + torch.arange(codes.shape[1], device=codes.device)
        new = module.pre_transformer(
            inputs_embeds=module.code_embedding(codes[None] + module.code_offset).mean(1),
            attention_mask={"sliding_attention": self._mask(positions)},
            position_ids=positions[None],
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        hidden = torch.cat([hidden, new], 1)
        return self._convolve(hidden.permute(0, 2, 1)), cache.extended, hidden

    def _mask(self, positions: torch.Tensor) -> torch.Tensor:
        """Returns the attention mask of frames at consecutive positions, for the memory and these frames."""
        before = torch.arange(-self._window, 0, device=positions.device) + positions[0]
        keys = torch.cat([before, positions])
        distances = positions[:, None] - keys
        return ((keys >= 0) & (distances >= 0) & (distances <= self._window))[None, None]

    def _convolve(self, hidden: torch.Tensor) -> torch.Tensor:
        for blocks in self._module.upsample:
            for block in blocks:
                hidden = block(hidden)
        for block in self._module.decoder:
            hidden = block(hidden)
        return hidden.clamp(-1, 1)[0, 0]
