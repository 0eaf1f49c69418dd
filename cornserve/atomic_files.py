"""Files that other processes read while they are written."""

from __future__ import annotations

from pathlib import Path


def write_atomically(file: Path, text: str) -> None:
    """Replaces the content of `file`. Readers find either the old or the new text, even after a crash."""
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(file)
