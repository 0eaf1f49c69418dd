"""The size of an invocation's input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class InputSize:
    """The size of an input, as far as it is known before the invocation runs. The numbers may be estimates."""

    text: int = 0
    """Tokens of text."""
    media: int = 0
    """Tokens of images, audio and videos."""
    output: int = 0
    """The largest number of tokens that the invocation generates, or 0 if it is unknown."""
    items: int = 1
    """The number of inputs that the executor can batch separately, such as images."""

    @property
    def tokens(self) -> int:
        """All tokens of the input."""
        return self.text + self.media


UNKNOWN_SIZE: Final = InputSize()
