"""Models that speak, with random weights. Their speeches do not end by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Qwen2_5OmniConfig, Qwen3OmniMoeConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import (
    Qwen2_5OmniTalkerForConditionalGeneration,
    Qwen2_5OmniToken2WavModel,
)
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeCode2Wav,
    Qwen3OmniMoeTalkerForConditionalGeneration,
)

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.random_weights import build_random
from cornserve_demo.omni_config import MEDIA_TOKENS, ROLES, SPEECH_TOKENS
from cornserve_demo.tokenizer import make_letter_tokenizer
from cornserve_executors.talker.qwen2_5_omni.model import Qwen25OmniSpeech
from cornserve_executors.talker.qwen2_5_omni.vocoder import Token2Wav
from cornserve_executors.talker.qwen2_5_omni.voices import Voice
from cornserve_executors.talker.qwen3_omni.model import Qwen3OmniSpeech
from cornserve_executors.talker.qwen3_omni.vocoder import Code2Wav
from cornserve_executors.talker.talker_model import TalkerModel
from cornserve_executors.talker.vocoder import Vocoder

REFERENCE_FRAMES = 300
"""The length of the spectrogram of a Qwen2.5-Omni's voice: three seconds."""


@dataclass(frozen=True, slots=True)
class RecordedState:
    seed: int
    state: Any
    """The state of the recorded vocoder."""


class RecordingVocoder(Vocoder[RecordedState]):
    """Keeps the codes that a vocoder decodes, of the last speech with each seed, and measures their decoding."""

    def __init__(self, vocoder: Vocoder[Any]) -> None:
        self._vocoder = vocoder
        self.frame_samples, self.output_samples = vocoder.frame_samples, vocoder.output_samples
        self.groups, self.warm_up_frames = vocoder.groups, vocoder.warm_up_frames
        self._codes: dict[int, list[torch.Tensor]] = {}
        self.seconds = 0.0
        """The duration of all chunks."""
        self.chunks = 0
        """The number of chunks."""

    @property
    def captured_graphs(self) -> int:
        return self._vocoder.captured_graphs

    def codes(self, seed: int) -> torch.Tensor:
        """Returns the codes of a speech, of the shape [groups, frames]."""
        return torch.cat(self._codes[seed], 1).cpu()

    def start(self, voice: str, seed: int) -> RecordedState:
        self._codes[seed] = []
        return RecordedState(seed, self._vocoder.start(voice, seed))

    def chunk_frames(self, decoded: int) -> int:
        return self._vocoder.chunk_frames(decoded)

    def decode(self, state: RecordedState, frames: torch.Tensor) -> torch.Tensor:
        self._codes[state.seed].append(frames)
        return self._measure(lambda: self._vocoder.decode(state.state, frames))

    def finish(self, state: RecordedState) -> torch.Tensor:
        return self._measure(lambda: self._vocoder.finish(state.state))

    def _measure(self, decode: Callable[[], torch.Tensor]) -> torch.Tensor:
        started = time.perf_counter()
        samples = decode().cpu()  # Waits for the GPU.
        self.seconds += time.perf_counter() - started
        self.chunks += len(samples) > 0
        return samples


@dataclass(frozen=True, slots=True)
class RandomSpeech:
    name: str
    model: TalkerModel
    vocoder: RecordingVocoder
    """The vocoder of the model."""
    reads_states: bool
    """Whether the talker reads hidden states of the thinker."""


def random_qwen3_omni(check: Check, *, enforce_eager: bool) -> RandomSpeech:
    """Returns a Qwen3-Omni. Its tokens are those of the demo model, in which each byte is a token.

    Args:
        enforce_eager: see `VocoderOptions`.
    """
    tokenizer = make_letter_tokenizer(MEDIA_TOKENS)
    token = tokenizer.convert_tokens_to_ids
    config = Qwen3OmniMoeConfig(
        **check.config("qwen3-omni-30b-a3b"),
        im_start_token_id=token("<|im_start|>"),
        im_end_token_id=token("<|im_end|>"),
        **{f"tts_{name}_token_id": token(text) for name, text in SPEECH_TOKENS.items()},
        **{f"{role}_token_id": token(role) for role in ROLES},
    )
    talker = build_random(
        lambda: Qwen3OmniMoeTalkerForConditionalGeneration._from_config(config.talker_config),
        check.device,
        check.dtype,
    )
    _suppress(talker, [config.talker_config.codec_eos_token_id])
    module = build_random(
        lambda: Qwen3OmniMoeCode2Wav._from_config(config.code2wav_config), check.device, torch.float32
    )
    vocoder = RecordingVocoder(Code2Wav(module, enforce_eager=enforce_eager))
    model = Qwen3OmniSpeech(config, tokenizer, talker, _embeddings(config, talker), vocoder)
    return RandomSpeech("Qwen3-Omni", model, vocoder, reads_states=False)


def random_qwen25_omni(check: Check, *, enforce_eager: bool) -> RandomSpeech:
    """Returns a Qwen2.5-Omni with one voice. See `random_qwen3_omni`."""
    config = Qwen2_5OmniConfig(**check.config("qwen2.5-omni-7b"))
    talker = build_random(
        lambda: Qwen2_5OmniTalkerForConditionalGeneration._from_config(config.talker_config),
        check.device,
        check.dtype,
    )
    _suppress(talker, [talker.codec_eos_token, talker.codec_pad_token])
    module = build_random(
        lambda: Qwen2_5OmniToken2WavModel._from_config(config.token2wav_config), check.device, torch.float32
    )
    width, bands = config.token2wav_config.dit_config.enc_emb_dim, config.token2wav_config.dit_config.mel_dim
    voice = Voice(
        start_token=config.talker_config.tts_text_start_token_id,
        condition=torch.randn(1, width, device=check.device),
        reference=torch.randn(1, REFERENCE_FRAMES, bands, device=check.device),
    )
    voices = {"voice": voice}
    vocoder = RecordingVocoder(Token2Wav(module, voices, enforce_eager=enforce_eager))
    tokenizer = make_letter_tokenizer(MEDIA_TOKENS)
    model = Qwen25OmniSpeech(config, tokenizer, talker, _embeddings(config, talker), voices, vocoder)
    return RandomSpeech("Qwen2.5-Omni", model, vocoder, reads_states=True)


def _suppress(talker: Any, codes: list[int]) -> None:
    """Makes the logits of codes zero, so that they are not among the likeliest ones, from which talkers sample."""
    talker.codec_head.weight[codes] = 0


def _embeddings(config: Any, talker: Any) -> torch.Tensor:
    """Returns the thinker's embeddings of tokens, of the shape [tokens, width]."""
    text = config.thinker_config.text_config
    return torch.randn(text.vocab_size, text.hidden_size, device=talker.device, dtype=talker.dtype) / 50
