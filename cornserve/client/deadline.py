"""Timeouts and deadlines."""

from __future__ import annotations

import time

CONNECT_SECONDS = 5.0
ADMIN_SECONDS = 60.0
"""Timeout of responses that need no model, and of sending a request."""


class Deadline:
    def __init__(self, seconds: float | None) -> None:
        self.seconds = float("inf") if seconds is None else seconds
        self._end = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.left <= 0
