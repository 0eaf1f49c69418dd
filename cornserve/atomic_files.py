"""Files that other processes read while they are written."""

from __future__ import annotations

from pathlib import Path


def write_atomically(file: Path, text: str) -> None:
    """Readers see the old text or the new one, and so does who comes after a crash."""
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(file)
