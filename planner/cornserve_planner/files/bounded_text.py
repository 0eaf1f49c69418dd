"""Reads text files of limited size. A device such as /dev/zero, or a file without lines, would fill the memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from cornserve_plan.bounded_file import read_bounded
from cornserve_planner.errors import InvalidInputError

MAX_DOCUMENT_MIB = 16
MAX_LINE_CHARACTERS = 1 << 20


def read_document(path: Path) -> str:
    """Returns the text of a file. Raises `InvalidInputError` if it cannot be read or is too large."""
    try:
        return read_bounded(path, MAX_DOCUMENT_MIB)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise InvalidInputError(str(path), f"is larger than {MAX_DOCUMENT_MIB} MiB: give a smaller file") from error
        raise InvalidInputError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(str(path), "is not UTF-8 text: save it as UTF-8") from error


def bounded_lines(file: TextIO, name: str) -> Iterator[str]:
    """Yields the lines of a file. Raises `InvalidInputError` for a line that is too long."""
    number = 0
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        number += 1
        if len(line) > MAX_LINE_CHARACTERS:
            raise InvalidInputError(
                f"{name} line {number}", f"is longer than {MAX_LINE_CHARACTERS >> 20} MiB: write one request in a line"
            )
        yield line
