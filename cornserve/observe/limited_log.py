"""Logs messages that other processes can cause, at a limited rate."""

from __future__ import annotations

import logging
import time

INTERVAL_SECONDS = 10.0


class LimitedLog:
    """Logs at most one message per `INTERVAL_SECONDS`, with the number of messages that were left out."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._next_at = 0.0
        self._left_out = 0

    def warning(self, message: str, *values: object) -> None:
        now = time.monotonic()
        if now < self._next_at:
            self._left_out += 1
            return
        suffix = f" ({self._left_out} similar messages were left out)" if self._left_out else ""
        self._log.warning(message + suffix, *values)
        self._next_at, self._left_out = now + INTERVAL_SECONDS, 0
