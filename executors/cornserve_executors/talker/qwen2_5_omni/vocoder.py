"""Decodes the codes of Qwen2.5-Omni to samples, block by block.

A flow-matching transformer generates a mel spectrogram of all codes, and BigVGAN converts it to samples. The
transformer attends to blocks of frames: in each evaluation, the influence of a block reaches its neighbors. This
vocoder generates the next blocks within a window of their neighbors, and draws the noise of each block from the seed
and the block's index. The result is close to that of all codes at once, but not equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

import numpy as np
import torch
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniToken2WavModel, RungeKutta4ODESolver

from cornserve_executors.talker.checkpoint import SpeechCheckpoint
from cornserve_executors.talker.qwen2_5_omni.voices import Voice, load_voices
from cornserve_executors.talker.vocoder import FrameShape, Vocoder

BLOCKS_BACK = 4
"""The earlier blocks in a window."""

BLOCKS_AHEAD = 1
"""The following blocks in a window, for which the newest blocks wait."""

MAX_CHUNK_BLOCKS = 8

CONTEXT_FRAMES = 16
"""The mel frames on each side with which BigVGAN's samples equal those of a whole spectrogram, up to rounding."""

STEPS, GUIDANCE, SWAY = 10, 0.5, -1.0
"""Qwen2.5-Omni's defaults of flow matching."""


@dataclass(slots=True)
class Token2WavState:
    """The state of one speech between two chunks."""

    voice: Voice
    seed: int
    codes: list[int] = field(default_factory=list)
    blocks: int = 0
    """The number of blocks that have been generated."""
    frames: torch.Tensor | None = None
    """The last mel frames, of the shape [1, bands, frames]: those whose samples are missing, and their context."""
    context: int = 0
    """The number of these frames that are context."""


class Token2Wav(Vocoder[Token2WavState]):
    """The vocoder of a Qwen2.5-Omni.

    Args:
        module: transformers' `Qwen2_5OmniToken2WavModel`.
        voices: by name.
    """

    def __init__(self, module: Any, voices: Mapping[str, Voice]) -> None:
        self._transformer = module.code2wav_dit_model
        self._bigvgan = module.code2wav_bigvgan_model
        self._voices = voices
        encode = self._transformer.input_embed.spk_encoder
        with torch.inference_mode():
            self._speakers = {
                voice: encode(torch.cat([voice.reference, torch.zeros_like(voice.reference)]))
                for voice in voices.values()
            }
        """The embeddings of each voice and of silence, of the shape [2, width]."""
        self._block_codes: int = self._transformer.block_size // self._transformer.repeats
        self.frame_samples = self._transformer.repeats * prod(self._bigvgan.config.upsample_rates)

    @classmethod
    def load(cls, config: Any, checkpoint: SpeechCheckpoint, device: str) -> Self:
        """Raises `ExecutorStartError` if the checkpoint is incomplete."""
        module = Qwen2_5OmniToken2WavModel._from_config(config.token2wav_config)
        module = checkpoint.fill(module, "token2wav.", device, torch.float32)
        return cls(module, load_voices(checkpoint.model_id, checkpoint.revision, device))

    @staticmethod
    def frame_shape(config: Any) -> FrameShape:
        vocoder = config.token2wav_config
        samples = vocoder.dit_config.repeats * prod(vocoder.bigvgan_config.upsample_rates)
        return FrameShape(groups=1, samples=samples)

    def start(self, voice: str, seed: int) -> Token2WavState:
        return Token2WavState(self._voices[voice], seed)

    def chunk_frames(self, decoded: int) -> int:
        block = self._block_codes
        if decoded == 0:
            return (1 + BLOCKS_AHEAD) * block
        return max(block, min(decoded - BLOCKS_AHEAD * block, MAX_CHUNK_BLOCKS * block))

    def decode(self, state: Token2WavState, frames: torch.Tensor) -> torch.Tensor:
        state.codes += frames[0].tolist()
        return self._add_blocks(state, len(state.codes) // self._block_codes - BLOCKS_AHEAD, CONTEXT_FRAMES)

    def finish(self, state: Token2WavState) -> torch.Tensor:
        return self._add_blocks(state, -(-len(state.codes) // self._block_codes), 0)

    def _add_blocks(self, state: Token2WavState, end: int, held_back: int) -> torch.Tensor:
        """Generates the blocks up to `end`, and returns their samples, except those of the last mel frames."""
        if end > state.blocks:
            new = self._generate(state, state.blocks, end)
            state.frames = new if state.frames is None else torch.cat([state.frames, new], 2)
            state.blocks = end
        if state.frames is None:
            return torch.zeros(0)
        ready = state.frames.shape[2] - held_back
        if ready <= state.context:
            return torch.zeros(0)
        samples = self._bigvgan(state.frames).reshape(-1)
        rate = len(samples) // state.frames.shape[2]
        samples = samples[state.context * rate : ready * rate]
        context = min(ready, CONTEXT_FRAMES)
        state.frames, state.context = state.frames[:, :, ready - context :], context
        return samples

    def _generate(self, state: Token2WavState, start: int, end: int) -> torch.Tensor:
        """Returns the mel frames of blocks, of the shape [1, bands, frames]."""
        first, last = max(0, start - BLOCKS_BACK), end + BLOCKS_AHEAD
        block, repeats = self._block_codes, self._transformer.repeats
        device = state.voice.reference.device
        codes = torch.tensor([state.codes[first * block : last * block]], device=device)
        noise = torch.cat([self._noise(state.seed, index) for index in range(first, last)])
        frames = codes.shape[1] * repeats
        mel = self._integrate(codes, noise[None, :frames].to(device), state.voice)
        size = block * repeats
        return mel[:, (start - first) * size : (end - first) * size].permute(0, 2, 1)

    def _noise(self, seed: int, block: int) -> torch.Tensor:
        """Returns the noise of one block, of the shape [mel frames, bands]."""
        generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 1, block]))
        shape = self._block_codes * self._transformer.repeats, self._transformer.mel_dim
        return torch.from_numpy(generator.standard_normal(shape, np.float32))

    def _integrate(self, codes: torch.Tensor, noise: torch.Tensor, voice: Voice) -> torch.Tensor:
        """Integrates the flow, as `Qwen2_5OmniToken2WavDiTModel.sample` does, from given noise.

        Args:
            codes: the shape is [1, codes].
            noise: the shape is [1, mel frames, bands].
        """
        transformer = self._transformer
        length = noise.shape[1]
        # Each pair is with and without guidance. These inputs are the same in all evaluations.
        condition = torch.cat([voice.condition, torch.zeros_like(voice.condition)])[:, None].expand(-1, length, -1)
        speaker = self._speakers[voice][:, None].expand(-1, length, -1)
        embedded_codes = torch.cat([transformer.text_embed(codes), transformer.text_embed(codes, drop_code=True)])
        constant = torch.cat([speaker, embedded_codes, condition], -1)
        rotary = transformer.rotary_embed(constant, torch.arange(length, device=noise.device).expand(2, -1))
        blocks = transformer._create_block_diff(constant)

        def velocity(time: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
            embedded_time = transformer.time_embed(time.repeat(2))
            hidden = transformer.input_embed.proj(torch.cat([frames.expand(2, -1, -1), constant], -1))
            for layer in transformer.transformer_blocks:
                hidden = layer(hidden, embedded_time, position_embeddings=rotary, block_diff=blocks)
            guided, plain = transformer.proj_out(transformer.norm_out(hidden, embedded_time)).chunk(2)
            result: torch.Tensor = guided + (guided - plain) * GUIDANCE
            return result

        times = torch.linspace(0, 1, STEPS, device=noise.device)
        times = times + SWAY * (torch.cos(torch.pi / 2 * times) - 1 + times)
        result: torch.Tensor = RungeKutta4ODESolver(velocity, noise).integrate(times)[-1]
        return result
