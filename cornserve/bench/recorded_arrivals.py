"""The arrivals of recorded requests, which may wait for the ends of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordedArrival:
    """The arrival of one request.

    Args:
        due: seconds since the start of the run. A request with `after` is sent no earlier.
        id: the name by which later requests refer to this one.
        after: the requests that must have ended, successfully or not.
        delay: seconds after the last of them.
    """

    due: float
    id: str | None = None
    after: tuple[str, ...] = ()
    delay: float = 0.0


class RequestEnds:
    """The times at which requests have ended, by their ids.

    Args:
        now: returns the seconds since the start of the run.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ends: dict[str, asyncio.Future[float]] = {}

    def start(self, arrival: RecordedArrival) -> None:
        """Adds a request. Those of `after` must have been added."""
        if arrival.id is not None:
            self._ends[arrival.id] = asyncio.get_running_loop().create_future()

    def end(self, arrival: RecordedArrival) -> None:
        if arrival.id is not None:
            self._ends[arrival.id].set_result(self._now())

    async def wait(self, arrival: RecordedArrival) -> float:
        """Waits until a request may be sent. Returns its due time."""
        due = arrival.due
        for id in arrival.after:
            due = max(due, await self._ends[id] + arrival.delay)
        if (pause := due - self._now()) > 0:
            await asyncio.sleep(pause)
        return due
