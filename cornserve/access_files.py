"""The secrets of an instance in files, which may change while the gateway runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from cornserve.access import Access, AccessError
from cornserve.file_version import FileVersion, file_version
from cornserve.observe.error_log import ErrorLog

log = logging.getLogger(__name__)


class AccessFiles:
    """Reads the secrets again when a file changes.

    Args:
        load: reads the secrets. Raises `AccessError`.
        files: the files with the secrets.

    Raises:
        AccessError: the secrets cannot be used.
    """

    def __init__(self, load: Callable[[], Access], files: Sequence[Path]) -> None:
        self._load = load
        self._files = files
        self._versions = self._read_versions()
        self._access = load()
        self._errors = ErrorLog(log, "%s; the gateway accepts the secrets that were read before")

    def current(self) -> Access:
        """Returns the secrets. Files that cannot be used are read again at the next call: they may be being written."""
        versions = self._read_versions()
        if versions != self._versions:
            try:
                self._access = self._load()
            except AccessError as error:
                self._errors.report(str(error))
            else:
                self._versions = versions
                self._errors.clear()
                log.info("read the changed secrets in %s", ", ".join(map(str, self._files)))
        return self._access

    def _read_versions(self) -> list[FileVersion | None]:
        return [file_version(file) for file in self._files]
