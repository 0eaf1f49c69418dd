"""A file that processes write to as their standard output.

A library's rotating handler would not do: engines write there too, from processes and threads of their own, and go on
doing so when the file has another name. All of them append, so the file itself can be emptied under them.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 16 << 20
"""What was written before that is kept once more, in a file beside it."""


def older(log: Path) -> Path:
    """Where the part of the log is that was set aside last."""
    return log.with_name(f"{log.name}.1")


def set_aside(log: Path) -> None:
    """For a log that nobody writes to; what was set aside before is gone."""
    with suppress(FileNotFoundError):
        log.replace(older(log))


def bound(log: Path) -> None:
    """Sets the log aside if it has grown too large, while it is written to. May lose what is written in the very
    moment between copy and cut."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > MAX_BYTES:
            with suppress(OSError):  # on a full disk, it is cut all the same
                shutil.copyfile(log, older(log))
            os.truncate(log, 0)


def end_of(log: Path, max_bytes: int) -> bytes:
    """The last bytes of the log, also of the part that was set aside. Raises FileNotFoundError if there is no log."""
    end = _end(log, max_bytes)
    with suppress(FileNotFoundError):
        end = _end(older(log), max_bytes - len(end)) + end
    return end


def _end(file: Path, max_bytes: int) -> bytes:
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - max_bytes))
        return opened.read(max_bytes)
