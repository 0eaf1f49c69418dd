"""Texts without control characters, which would change what a terminal shows."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, those of bidirectional text, further line breaks, and lone surrogates."""


def printable(text: str) -> str:
    r"""Returns the text with escapes, such as `\x1b`, in place of control characters."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_line(text: str) -> str:
    """Returns the text as one line, with escapes in place of control characters."""
    return printable(" ".join(filter(None, map(str.strip, text.splitlines()))))


def require_printable(text: str) -> str:
    """Returns the text. Raises `ValueError` if it has control characters or line breaks."""
    if any(ord(character) < 32 for character in text) or _CONTROL.search(text):
        raise ValueError("must not have control characters")
    return text
