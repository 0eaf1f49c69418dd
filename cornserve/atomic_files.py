"""Files that other processes read while they are written."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

PROBE_BYTES = 64 * 1024
"""A full disk accepts an empty file."""


class IrregularFileError(OSError):
    """The path is that of a directory, a pipe or another object without a content."""

    def __init__(self, file: Path) -> None:
        super().__init__(errno.EINVAL, "not a regular file", str(file))


def read_regular_file(file: Path) -> bytes:
    """Returns the content. Raises `IrregularFileError`, where the read of a pipe would wait, and `OSError`."""
    if file.exists() and not file.is_file():
        raise IrregularFileError(file)
    return file.read_bytes()


def write_atomically(file: Path, text: str) -> None:
    """Replaces the content of `file`. Readers find either the old or the new text, even after a crash."""
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(file)


def check_writable(directory: Path) -> None:
    """Creates the directory if it is missing. Raises `OSError` if files cannot be written there.

    A process on a full disk would otherwise fail at a random place.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(PROBE_BYTES))
