"""Results of the demo models."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Sample(Protocol):
    """A request to a model, and its result."""

    @property
    def is_correct(self) -> bool: ...

    @property
    def fields(self) -> dict[str, str]:
        """The request and the result by their names in JSON."""

    def save(self, file: Path) -> None:
        """Writes the image or the audio file. Raises `OSError`."""
