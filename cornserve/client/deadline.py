"""How long things may take."""

from __future__ import annotations

import time

CONNECT_SECONDS = 5.0
ADMIN_SECONDS = 60.0
"""For answers that take no model, and for sending what is asked."""


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
