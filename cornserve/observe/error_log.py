"""Logs errors of operations that are retried."""

from __future__ import annotations

import logging


class ErrorLog:
    """Logs an error once until it changes or the operation succeeds, so that retries do not fill the log.

    Args:
        message: the format of the line, with `%s` for the error.
    """

    def __init__(self, log: logging.Logger, message: str) -> None:
        self._log = log
        self._message = message
        self._last: str | None = None

    def report(self, error: str) -> None:
        if error != self._last:
            self._last = error
            self._log.error(self._message, error)

    def clear(self) -> None:
        """Forgets the error: the operation has succeeded."""
        self._last = None
