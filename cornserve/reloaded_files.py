"""Values from files that may change while a process runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from cornserve.observe.error_log import ErrorLog

log = logging.getLogger(__name__)

T = TypeVar("T")


class ReloadedFiles(Generic[T]):
    """Reads a value from files again when one of them changes. Raises `error` if they cannot be used at first.

    Args:
        load: reads the value.
        files: the files that it reads.
        error: the type of error that `load` raises for files that cannot be used.
        content: the content of the files for the log, in the plural, such as `secrets`.
    """

    def __init__(self, load: Callable[[], T], files: Sequence[Path], error: type[Exception], content: str) -> None:
        self._load = load
        self._files = files
        self._error = error
        self._content = content
        self._versions = self._read_versions()
        self._value = load()
        self._errors = ErrorLog(log, f"%s; the {content} that were read before stay in use")

    def current(self) -> T:
        """Returns the value. Files that cannot be used are read again at the next call: they may be being written."""
        versions = self._read_versions()
        if versions != self._versions:
            try:
                self._value = self._load()
            except self._error as error:
                self._errors.report(str(error))
            else:
                self._versions = versions
                self._errors.clear()
                log.info("read the changed %s in %s", self._content, ", ".join(map(str, self._files)))
        return self._value

    def _read_versions(self) -> list[tuple[int, int] | None]:
        return [_version(file) for file in self._files]


def _version(file: Path) -> tuple[int, int] | None:
    """Returns inode and time of change, or None for a file that does not exist."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
