"""Retries of calls."""

from __future__ import annotations

from collections.abc import Iterator

from cornserve.backoff import backoff_seconds
from cornserve.client.calls import ApiCall
from cornserve.client.errors import ClientError, DisconnectedError, UnreachableError

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


def pauses(retries: int) -> Iterator[float]:
    """Yields the seconds to wait before each retry."""
    for failures in range(1, retries + 1):
        yield backoff_seconds(failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)


def is_safe(call: ApiCall, error: ClientError) -> bool:
    """Returns whether a retry is safe: the call did not reach the gateway, or it only reads."""
    return isinstance(error, UnreachableError) or (call.method == "GET" and isinstance(error, DisconnectedError))
