"""Limits the size of a log file that processes write as their standard output.

A rotating logging handler does not suffice: engines write to the file from their own processes and threads, and keep
the open file when it is renamed. All writers append, so the file can be truncated while they write.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

MAX_LOG_BYTES = 16 << 20
"""A larger log is truncated. The previous content is kept in one rotated file."""


def rotated_path(log: Path) -> Path:
    """Returns the path of the log's rotated file."""
    return log.with_name(f"{log.name}.1")


def rotate(log: Path) -> None:
    """Renames a log that no process writes to. Replaces an earlier rotated file."""
    with suppress(FileNotFoundError):
        log.replace(rotated_path(log))


def copy_truncate(log: Path) -> None:
    """Rotates a log that is too large while processes write to it. Lines that are written between the copy and the
    truncation are lost."""
    with suppress(OSError):  # The log does not exist, or its file system is read-only.
        if log.stat().st_size > MAX_LOG_BYTES:
            with suppress(OSError):  # Truncate the log even if the disk is full.
                shutil.copyfile(log, rotated_path(log))
            os.truncate(log, 0)


def read_end(log: Path, max_bytes: int) -> bytes:
    """Returns the last bytes of the log, including its rotated file. Raises `FileNotFoundError` without a log."""
    end = _read_end(log, max_bytes)
    with suppress(FileNotFoundError):
        end = _read_end(rotated_path(log), max_bytes - len(end)) + end
    return end


def _read_end(path: Path, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - max_bytes))
        return file.read(max_bytes)
