"""Retries of calls."""

from __future__ import annotations

from collections.abc import Iterator

from cornserve.client.calls import ApiCall
from cornserve.client.errors import ClientError, DisconnectedError, UnreachableError

FIRST_PAUSE_SECONDS = 0.1
GROWTH = 3.0


def pauses(retries: int) -> Iterator[float]:
    """Yields the seconds to wait before each retry."""
    return (FIRST_PAUSE_SECONDS * GROWTH**attempt for attempt in range(retries))


def is_safe(call: ApiCall, error: ClientError) -> bool:
    """Returns whether a retry has no effect twice: the call did not reach the gateway, or only reads."""
    return isinstance(error, UnreachableError) or (call.method == "GET" and isinstance(error, DisconnectedError))
