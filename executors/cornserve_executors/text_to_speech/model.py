"""Loads a `VitsModel` with its tokenizer, and speaks sentences with it. All functions block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import VitsModel, VitsTokenizer

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_tasklib.text_to_speech import DEFAULT_VOICE, SpeechRequest, TextToSpeechTask
from cornserve_tasklib.vits_tokenizer import unsupported_reason


class SpeechModel:
    """A VITS model. Only one thread may speak at a time, as the model draws from torch's global generator."""

    def __init__(self, config: TextToSpeechTask, device: str) -> None:
        """Raises `ExecutorStartError` if the model is incomplete, or needs other programs."""
        try:
            self._tokenizer = VitsTokenizer.from_pretrained(config.model_id, revision=config.revision)
            self._model: Any = VitsModel.from_pretrained(config.model_id, revision=config.revision).to(device).eval()
        except (OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ExecutorStartError(f"{config.model_id} cannot be loaded: {reason}") from error
        settings = {name: getattr(self._tokenizer, name) for name in ("phonemize", "is_uroman")}
        if (problem := unsupported_reason(settings)) is not None:
            raise ExecutorStartError(f"{config.model_id} {problem}")
        self._device = device
        self.sample_rate: int = self._model.config.sampling_rate
        self.frame_samples = int(np.prod(self._model.config.upsample_rates))
        """The number of samples of a frame of the spectrogram."""

    def find_speaker(self, voice: str) -> int | None:
        """Returns the number of the speaker, or None for a model of one. Raises `InvalidRequestError`."""
        count: int = self._model.config.num_speakers
        names = [DEFAULT_VOICE, *map(str, range(count))] if count > 1 else [DEFAULT_VOICE]
        if voice not in names:
            allowed = f"{DEFAULT_VOICE} or a speaker from 0 to {count - 1}" if count > 1 else DEFAULT_VOICE
            raise InvalidRequestError(f"voice: this model has no voice {voice!r}: use {allowed}")
        if count == 1:
            return None
        return 0 if voice == DEFAULT_VOICE else int(voice)

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of the sentences, without those of which the model knows no character.

        Raises `InvalidRequestError` if the model knows no character at all.
        """
        encoded = [tokens for sentence in sentences if self._knows_part_of(tokens := self._encode(sentence))]
        if not encoded:
            raise InvalidRequestError(f"input: the model knows no character of the text: it reads {self._alphabet()}")
        return encoded

    def speak(
        self, tokens: Sequence[int], speaker: int | None, request: SpeechRequest, seed: int
    ) -> npt.NDArray[np.float32]:
        """Returns the samples of a sentence, from -1 to 1."""
        config = self._model.config
        devices = [torch.cuda.current_device()] if self._device == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            output = self._model(
                input_ids=torch.tensor([tokens], device=self._device),
                speaker_id=speaker,
                speaking_rate=config.speaking_rate * request.speed,
            )
        samples: npt.NDArray[np.float32] = output.waveform[0].cpu().numpy()
        return samples

    def _encode(self, sentence: str) -> list[int]:
        tokens: list[int] = self._tokenizer(sentence).input_ids
        return tokens

    def _knows_part_of(self, tokens: Sequence[int]) -> bool:
        # A tokenizer with blanks adds one around each character.
        return len(tokens) > 1 if self._tokenizer.add_blank else bool(tokens)

    def _alphabet(self) -> str:
        characters = sorted(token for token in self._tokenizer.encoder if len(token) == 1 and token.isalpha())
        return "".join(characters[:80])
