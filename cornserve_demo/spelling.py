"""Words, and the beeps that spell them: the data of the speaking demo model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from string import ascii_lowercase
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    import numpy as np

    Samples = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

LETTERS = ascii_lowercase

QUESTION = "Spell {}"
"""The request for a word of lowercase letters."""

MAX_LETTERS = 10

WORDS = ("corn", "kernel", "maize", "husk", "popcorn", "cob", "harvest", "field")
"""Words that the demo shows. They are not in the training data."""

_HELD_OUT = 8
"""One of this many random words is only used to evaluate."""

SAMPLE_RATE = 24_000

FRAME_SAMPLES = 1920
"""The samples of a frame: 80 ms, the length of a beep or a pause."""

SILENCE = len(LETTERS)
"""The code of a pause. The codes of letters are smaller."""

CODES = len(LETTERS) + 1

_LOWEST_PITCH = 220.0
"""The pitch of the letter a in Hz. Each following letter is a semitone higher."""

_AMPLITUDE = 0.5
_FADE_SECONDS = 0.01
_SILENT = 0.1
"""The root mean square below which a frame is a pause. A beep has about 0.3."""


def spell(word: str) -> str:
    """Returns the response for a word, for example "c o r n."."""
    return " ".join(word) + "."


def code_of(character: str) -> int:
    """Returns the code of the frame that speaks a character: a beep for a letter, and a pause for all others."""
    return LETTERS.index(character) if character in LETTERS else SILENCE


def random_word(randomness: random.Random, *, held_out: bool) -> str:
    """Returns a word of 1 to 10 random letters. A training word is never held out."""
    while True:
        word = "".join(randomness.choices(LETTERS, k=randomness.randint(1, MAX_LETTERS)))
        if held_out == (word in WORDS or crc32(word.encode()) % _HELD_OUT == 0):
            return word


def make_frames() -> Samples:
    """Returns the sounds of all codes, of the shape [codes, samples]."""
    import numpy as np

    seconds = np.arange(FRAME_SAMPLES) / SAMPLE_RATE
    fades = np.minimum(np.minimum(seconds, seconds[::-1]) / _FADE_SECONDS, 1)
    beeps = _AMPLITUDE * fades * np.sin(2 * np.pi * _pitches()[:, None] * seconds)
    frames: Samples = np.concatenate([beeps, np.zeros((1, FRAME_SAMPLES))]).astype(np.float32)
    return frames


def hear(samples: Samples) -> str:
    """Returns the letters of the beeps in a speech, whose last frame may be incomplete."""
    return "".join(_letters(samples))


def _letters(samples: Samples) -> Iterator[str]:
    """Yields the letter of each frame that is not silent: the one whose pitch is the loudest."""
    import numpy as np

    waves = np.exp(-2j * np.pi * _pitches()[:, None] * np.arange(FRAME_SAMPLES) / SAMPLE_RATE)
    for start in range(0, len(samples), FRAME_SAMPLES):
        frame = samples[start : start + FRAME_SAMPLES]
        if np.sqrt(np.mean(np.square(frame))) > _SILENT:
            yield LETTERS[int(np.abs(waves[:, : len(frame)] @ frame).argmax())]


def _pitches() -> Samples:
    """Returns the pitches of the letters in Hz."""
    import numpy as np

    pitches: Samples = _LOWEST_PITCH * 2 ** (np.arange(len(LETTERS), dtype=np.float32) / 12)
    return pitches
