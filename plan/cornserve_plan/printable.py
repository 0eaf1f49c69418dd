"""Texts without control characters, which would change what a terminal shows."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but tab and newline."""


def printable(text: str) -> str:
    r"""Returns the text with escapes, such as `\x1b`, in place of control characters."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def require_printable(text: str) -> str:
    """Returns the text. Raises `ValueError` if it has control characters or line breaks."""
    if any(ord(character) < 32 for character in text) or _CONTROL.search(text):
        raise ValueError("must not have control characters")
    return text
