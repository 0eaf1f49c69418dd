"""Reads files of limited size, so that a device such as /dev/zero does not fill the memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def read_bounded(file: Path, mebibytes: int) -> str:
    """Returns the text of a file.

    Raises `OSError` if it cannot be read or is larger, and `UnicodeDecodeError` if it is not UTF-8.
    """
    limit = mebibytes << 20
    with file.open("rb") as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: has more than {mebibytes} MiB", str(file))
    return content.decode()
