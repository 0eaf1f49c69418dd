"""Reads files and streams of limited size, so that a device such as /dev/zero does not fill the memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISCHR
from typing import BinaryIO


def read_bounded(file: Path, mebibytes: int) -> str:
    """Returns the text of a file.

    Raises `OSError` if it cannot be read, is a device or is larger, and `UnicodeDecodeError` if it is not UTF-8.
    """
    return read_bounded_bytes(file, mebibytes).decode()


def read_bounded_bytes(file: Path, mebibytes: int) -> bytes:
    """Returns the content of a file. Raises `OSError` if it cannot be read, is a device or is larger."""
    with _opened(file) as opened:
        return read_bounded_stream(opened, mebibytes, str(file))


def read_bounded_stream(stream: BinaryIO, mebibytes: int, name: str) -> bytes:
    """Returns the content of a stream. Raises `OSError` with the name if it is larger."""
    content = stream.read((mebibytes << 20) + 1)
    if len(content) > mebibytes << 20:
        raise _too_large(mebibytes, name)
    return content


def read_bounded_lines(file: Path, mebibytes: int) -> Iterator[bytes]:
    """Yields the lines of a file. Raises `OSError` if it cannot be read, is a device or is larger."""
    left = mebibytes << 20
    with _opened(file) as opened:
        while line := opened.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise _too_large(mebibytes, str(file))
            yield line


def _opened(file: Path) -> BinaryIO:
    if S_ISCHR(file.stat().st_mode):
        raise OSError(errno.EINVAL, "it is a device, not a file", str(file))
    return file.open("rb")


def _too_large(mebibytes: int, name: str) -> OSError:
    return OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: has more than {mebibytes} MiB", name)
