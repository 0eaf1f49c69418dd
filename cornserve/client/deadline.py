"""Timeouts and deadlines."""

from __future__ import annotations

import time
from math import isinf

CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 15.0
"""Timeout of responses that need no model. A gateway whose event loop is blocked is restarted in a shorter time."""

ADMIN_SECONDS = 60.0
"""Timeout of sending a request, and of a deployment, for which the gateway loads the app."""


class Deadline:
    def __init__(self, seconds: float | None) -> None:
        self.seconds = float("inf") if seconds is None else seconds
        self._end = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    @property
    def limit(self) -> float | None:
        """The seconds that are left, at least 0. None without a limit."""
        return None if isinf(self.seconds) else max(0.0, self.left)

    @property
    def is_over(self) -> bool:
        return self.left <= 0
