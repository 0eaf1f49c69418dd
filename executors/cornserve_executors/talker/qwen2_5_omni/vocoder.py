"""Decodes the codes of Qwen2.5-Omni to samples, block by block.

A flow-matching transformer generates a mel spectrogram of all codes, and BigVGAN converts it to samples. The
transformer attends to blocks of frames: in each evaluation, the influence of a block reaches its neighbors. This
vocoder generates the next blocks within a window of their neighbors, and draws the noise of each block from the seed
and the block's index. The result is close to that of all codes at once, but not equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

import numpy as np
import torch
from torch.nn import functional
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniToken2WavModel, RungeKutta4ODESolver

from cornserve_executors.talker.checkpoint import SpeechCheckpoint
from cornserve_executors.talker.graphs import GraphedFunction
from cornserve_executors.talker.qwen2_5_omni.voices import Voice, load_voices
from cornserve_executors.talker.vocoder import FrameShape, Vocoder

BLOCKS_BACK = 4
"""The earlier blocks in a window."""

BLOCKS_AHEAD = 1
"""The following blocks in a window, for which the newest blocks wait."""

MAX_CHUNK_BLOCKS = 8

CHUNK_BLOCKS = (1, 2, 4, MAX_CHUNK_BLOCKS)
"""The numbers of blocks that the chunks of a speech generate, without its end."""

CONTEXT_FRAMES = 16
"""The mel frames on each side with which BigVGAN's samples equal those of a whole spectrogram, up to rounding."""

WINDOW_BLOCKS = (2, 3, 5, 9, 13)
"""The sizes of the windows of a speech, without its end. Others are padded, because a CUDA graph is captured for each
size."""

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
        enforce_eager: see `VocoderOptions`.
    """

    groups = 1

    def __init__(self, module: Any, voices: Mapping[str, Voice], *, enforce_eager: bool = False) -> None:
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
        self._block_frames: int = self._transformer.block_size
        """The mel frames of a block."""
        self._mel_frame_samples = prod(self._bigvgan.config.upsample_rates)
        """The number of samples of a mel frame."""
        self.frame_samples = self._transformer.repeats * self._mel_frame_samples
        self._velocity = GraphedFunction(self._run_transformer, enforce_eager=enforce_eager)
        self._convert = GraphedFunction(self._run_bigvgan, enforce_eager=enforce_eager)
        if self._velocity.captures:
            self.warm_up_frames = (1 + sum(CHUNK_BLOCKS) + BLOCKS_AHEAD) * self._block_codes

    @property
    def captured_graphs(self) -> int:
        return self._velocity.captured + self._convert.captured

    @classmethod
    def load(cls, config: Any, checkpoint: SpeechCheckpoint, device: str, *, enforce_eager: bool) -> Self:
        """Raises `ExecutorStartError` if the checkpoint is incomplete."""
        module = Qwen2_5OmniToken2WavModel._from_config(config.token2wav_config)
        module = checkpoint.fill(module, "token2wav.", device, torch.float32)
        voices = load_voices(checkpoint.model_id, checkpoint.revision, device)
        return cls(module, voices, enforce_eager=enforce_eager)

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
        samples = self._samples(state.frames, ready)[state.context * self._mel_frame_samples :]
        context = min(ready, CONTEXT_FRAMES)
        state.frames, state.context = state.frames[:, :, ready - context :], context
        return samples

    def _samples(self, frames: torch.Tensor, ready: int) -> torch.Tensor:
        """Returns the samples of the first `ready` mel frames.

        Args:
            frames: mel frames of the shape [1, bands, frames].
        """
        spectrogram, length = self._bigvgan.process_mel_spectrogram(frames), frames.shape[2]
        if ready == length:  # Nothing follows the end of a speech, and so it cannot be padded.
            return self._run_bigvgan(spectrogram)[0]
        sizes = [2 * CONTEXT_FRAMES + blocks * self._block_frames for blocks in CHUNK_BLOCKS]
        padding = _round_up(length, sizes) - length
        return self._convert(functional.pad(spectrogram, (0, padding)))[0][: ready * self._mel_frame_samples]

    def _run_bigvgan(self, spectrogram: torch.Tensor) -> tuple[torch.Tensor]:
        """Returns samples, like `Qwen2_5OmniToken2WavBigVGANModel`, but leaves them on the device.

        Args:
            spectrogram: processed mel frames, of the shape [1, bands, frames].
        """
        bigvgan = self._bigvgan
        kernels = bigvgan.num_residual_blocks
        hidden = bigvgan.conv_pre(spectrogram)
        for index, upsample in enumerate(bigvgan.ups):
            hidden = upsample[0](hidden)
            blocks = bigvgan.resblocks[index * kernels : (index + 1) * kernels]
            hidden = sum(block(hidden) for block in blocks) / kernels
        samples = bigvgan.conv_post(bigvgan.activation_post(hidden))
        return (samples.clamp(-1, 1).reshape(-1),)

    def _generate(self, state: Token2WavState, start: int, end: int) -> torch.Tensor:
        """Returns the mel frames of blocks, of the shape [1, bands, frames]."""
        first, last = max(0, start - BLOCKS_BACK), end + BLOCKS_AHEAD
        device = state.voice.reference.device
        codes = torch.tensor([state.codes[first * self._block_codes : last * self._block_codes]], device=device)
        noise = torch.cat([self._noise(state.seed, index) for index in range(first, last)])
        frames = codes.shape[1] * self._transformer.repeats
        mel = self._integrate(codes, noise[None, :frames].to(device), state.voice)
        size = self._block_frames
        return mel[:, (start - first) * size : (end - first) * size].permute(0, 2, 1)

    def _noise(self, seed: int, block: int) -> torch.Tensor:
        """Returns the noise of one block, of the shape [mel frames, bands]."""
        generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 1, block]))
        shape = self._block_frames, self._transformer.mel_dim
        return torch.from_numpy(generator.standard_normal(shape, np.float32))

    def _integrate(self, codes: torch.Tensor, noise: torch.Tensor, voice: Voice) -> torch.Tensor:
        """Integrates the flow, as `Qwen2_5OmniToken2WavDiTModel.sample` does, from given noise.

        Args:
            codes: the shape is [1, codes].
            noise: the shape is [1, mel frames, bands].
        """
        transformer, length = self._transformer, noise.shape[1]
        size = _round_up(length, [blocks * self._block_frames for blocks in WINDOW_BLOCKS])
        codes = functional.pad(codes, (0, (size - length) // transformer.repeats))
        is_padding = torch.arange(size, device=noise.device) >= length
        # Each pair is with and without guidance. These inputs are the same in all evaluations.
        condition = torch.cat([voice.condition, torch.zeros_like(voice.condition)])[:, None].expand(-1, size, -1)
        speaker = self._speakers[voice][:, None].expand(-1, size, -1)
        embedded_codes = torch.cat([transformer.text_embed(codes), transformer.text_embed(codes, drop_code=True)])
        constant = torch.cat([speaker, embedded_codes, condition], -1)

        def velocity(time: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
            return self._velocity(time.to(frames.device, non_blocking=True), frames, constant, is_padding)[0]

        times = torch.linspace(0, 1, STEPS)  # Not on the GPU, because the solver compares them.
        times = times + SWAY * (torch.cos(torch.pi / 2 * times) - 1 + times)
        noise = functional.pad(noise, (0, 0, 0, size - length))
        result: torch.Tensor = RungeKutta4ODESolver(velocity, noise).integrate(times)[-1]
        return result[:, :length]

    def _run_transformer(
        self, time: torch.Tensor, frames: torch.Tensor, constant: torch.Tensor, is_padding: torch.Tensor
    ) -> tuple[torch.Tensor]:
        """Returns the velocity of the flow.

        Args:
            time: the shape is [].
            frames: the shape is [1, mel frames, bands].
            constant: the other inputs of each frame, with and without guidance, of the shape [2, mel frames, width].
            is_padding: the shape is [mel frames].
        """
        transformer, length = self._transformer, frames.shape[1]
        rotary = transformer.rotary_embed(constant, torch.arange(length, device=frames.device).expand(2, -1))
        distances = transformer._create_block_diff(constant)[:1, :1]
        # Padding and other frames do not attend to each other.
        distances = distances.masked_fill(is_padding != is_padding[:, None], length)
        embedded_time = transformer.time_embed(time.repeat(2))
        hidden = transformer.input_embed.proj(torch.cat([frames.expand(2, -1, -1), constant], -1))
        for layer in transformer.transformer_blocks:
            hidden = layer(hidden, embedded_time, position_embeddings=rotary, block_diff=distances)
        guided, plain = transformer.proj_out(transformer.norm_out(hidden, embedded_time)).chunk(2)
        return (guided + (guided - plain) * GUIDANCE,)


def _round_up(size: int, sizes: Sequence[int]) -> int:
    """Returns the smallest of the sizes that suffices, or the size itself."""
    return min((other for other in sizes if other >= size), default=size)
