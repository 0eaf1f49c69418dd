"""Asks the deployed speaking model to spell words, and listens to its beeps."""

from __future__ import annotations

import wave
from base64 import b64decode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from cornserve_demo.spelling import QUESTION, WORDS, hear, random_word, spell

if TYPE_CHECKING:
    from cornserve import Client

MODEL = Path(__file__).with_name("speller-model")
"""The weights, as `python -m cornserve_demo.train` makes them."""

APP = "demo-speller"
SHARES = {"speech": 1}
"""The path whose responses are spoken."""

_AUDIO = {"voice": "beeps", "format": "wav"}
_MAX_TOKENS = 40
_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class SpelledWord:
    """A word, and how the model has spelled it."""

    word: str
    answer: str
    """The letters, for example "c o r n."."""
    audio: bytes
    """The beeps, as a WAV file."""

    @property
    def heard(self) -> str:
        """The letters of the beeps."""
        import numpy as np

        with wave.open(BytesIO(self.audio)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return hear(samples.astype(np.float32) / 2**15)

    @property
    def is_correct(self) -> bool:
        return self.answer == spell(self.word) and self.heard == self.word

    @property
    def fields(self) -> dict[str, str]:
        return {"word": self.word, "answer": self.answer, "heard": self.heard}

    def save(self, file: Path) -> None:
        file.write_bytes(self.audio)


def sample(count: int, seed: int) -> list[str]:
    """Returns random words that the training data do not contain, after a few words of the language."""
    randomness = Random(f"spelled {seed}")
    return [*WORDS, *(random_word(randomness, held_out=True) for _ in range(count))][:count]


def spell_words(client: Client, words: Sequence[str]) -> list[SpelledWord]:
    """Spells words concurrently."""
    with ThreadPoolExecutor(_CONCURRENCY) as threads:
        return list(threads.map(lambda word: _spell_word(client, word), words))


def _spell_word(client: Client, word: str) -> SpelledWord:
    messages = [{"role": "user", "content": QUESTION.format(word)}]
    completion = client.complete(
        APP, messages, modalities=["text", "audio"], audio=_AUDIO, temperature=0, max_tokens=_MAX_TOKENS
    )
    audio = completion["choices"][0]["message"]["audio"]
    return SpelledWord(word, audio["transcript"], b64decode(audio["data"]))
