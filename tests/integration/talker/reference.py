"""Speech as transformers generates it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SpeechReference:
    """The tokens and the samples that transformers generates."""

    tokens: list[int]
    samples: NDArray[np.float32]


class TransformersSpeech:
    """transformers' own model, unchanged, with greedy decoding."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoTokenizer, Qwen3OmniMoeForConditionalGeneration

        self._model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(model).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(model)

    def speak(self, chat: Sequence[dict[str, str]], voice: str, tokens: int, frames: int) -> SpeechReference:
        """Generates text of a number of tokens, and speech of a number of frames.

        transformers does not speak the last token that it generates, even if it is not an end token. It generates one
        more than `tokens`, which is left out of the result.
        """
        import torch

        prompt = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = self._tokenizer(prompt, return_tensors="pt").input_ids
        sequence, audio = self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            speaker=voice,
            thinker_max_new_tokens=tokens + 1,
            thinker_eos_token_id=-1,
            thinker_do_sample=False,
            talker_do_sample=False,
            talker_max_new_tokens=frames + 1,  # transformers does not return the last frame.
        )
        return SpeechReference(sequence[0, ids.shape[1] : -1].tolist(), audio[0, 0].numpy())


def samples_of(pcm: str) -> NDArray[np.float64]:
    """Returns samples from -1 to 1."""
    return np.frombuffer(b64decode(pcm), dtype="<i2") / 32767
