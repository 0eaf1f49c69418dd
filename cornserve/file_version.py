"""Finds out whether a file has changed."""

from __future__ import annotations

from pathlib import Path

FileVersion = tuple[int, int]


def file_version(file: Path) -> FileVersion | None:
    """Returns inode and time of change, or None for a file that does not exist."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
