"""Which calls are made again, and when."""

from __future__ import annotations

from collections.abc import Iterator

from cornserve.client.calls import Call
from cornserve.client.errors import ClientError, DisconnectedError, UnreachableError

FIRST_PAUSE_SECONDS = 0.1
GROWTH = 3.0


def pauses(retries: int) -> Iterator[float]:
    return (FIRST_PAUSE_SECONDS * GROWTH**attempt for attempt in range(retries))


def is_safe(call: Call, error: ClientError) -> bool:
    """Whether making the call again cannot do twice what it does: it was never sent, or does nothing."""
    return isinstance(error, UnreachableError) or (call.method == "GET" and isinstance(error, DisconnectedError))
