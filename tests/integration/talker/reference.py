"""Speech as transformers generates it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image


@dataclass(frozen=True)
class SpeechReference:
    """The tokens and the samples that transformers generates."""

    tokens: list[int]
    samples: NDArray[np.float32]
    codes: list[list[int]] = field(default_factory=list)
    """The codes of each group, of a Qwen3-Omni."""


class TransformersSpeech:
    """transformers' own model with greedy decoding. Only a missing configuration is set."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoProcessor, Qwen3OmniMoeForConditionalGeneration

        self._model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(model).eval()
        # transformers' positions of audio next to images read it from here, where it is missing.
        self._model.talker.config.audio_config = self._model.config.thinker_config.audio_config
        self._processor = AutoProcessor.from_pretrained(model)

    @property
    def vocoder(self) -> Any:
        return self._model.code2wav

    def speak(
        self,
        chat: Sequence[dict[str, Any]],
        voice: str,
        tokens: int,
        frames: int,
        images: Sequence[Image] = (),
        audio: Sequence[NDArray[np.float32]] = (),
    ) -> SpeechReference:
        """Generates text of a number of tokens, and speech of a number of frames.

        transformers does not speak the last token that it generates, even if it is not an end token. It generates one
        more than `tokens`, which is left out of the result.
        """
        prompt = self._processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        inputs = self._processor(
            text=prompt, images=list(images) or None, audio=list(audio) or None, return_tensors="pt"
        )
        with patch.object(self.vocoder, "chunked_decode", wraps=self.vocoder.chunked_decode) as decode:
            sequence, speech = self._model.generate(
                **inputs,
                speaker=voice,
                thinker_max_new_tokens=tokens + 1,
                thinker_eos_token_id=-1,
                thinker_do_sample=False,
                talker_do_sample=False,
                talker_max_new_tokens=frames + 1,  # transformers does not return the last frame.
            )
        (codes,) = decode.call_args.args[0].tolist()
        tokens_before = inputs["input_ids"].shape[1]
        return SpeechReference(sequence[0, tokens_before:-1].tolist(), speech[0, 0].numpy(), codes)


def samples_of(pcm: str) -> NDArray[np.float64]:
    """Returns samples from -1 to 1."""
    return np.frombuffer(b64decode(pcm), dtype="<i2") / 32767
