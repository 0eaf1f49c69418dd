"""Divides texts into sentences, which are spoken one after the other."""

from __future__ import annotations

import re
import textwrap

MAX_SENTENCE_CHARACTERS = 300
"""Longer sentences are divided between words: the time and memory of a sentence grow with the square of its length."""

_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 - the punctuation of Chinese and Japanese
"""The end of a sentence. Latin punctuation needs a space, as it is also part of numbers and names."""


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a text, without empty ones. A short text of one sentence is not changed."""
    sentences = [part for part in _END.split(text) if part.strip()]
    return [piece for sentence in sentences for piece in _split_long(sentence)]


def _split_long(sentence: str) -> list[str]:
    if len(sentence) <= MAX_SENTENCE_CHARACTERS:
        return [sentence]
    return textwrap.wrap(sentence, MAX_SENTENCE_CHARACTERS, break_on_hyphens=False)
