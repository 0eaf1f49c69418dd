"""The limits of retries during a request."""

from __future__ import annotations

from typing import Final

PLACEMENT_SECONDS: Final = 0.2
"""The delay before an invocation without an available replica is placed again."""

MAX_EXECUTOR_DEATHS: Final = 1
"""The number of executors that may die during one request. A limit keeps one request from killing all executors."""
