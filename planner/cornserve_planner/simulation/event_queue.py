"""The events of a simulation, in the order of their times."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventQueue:
    """A heap of events. Events at one time run in the order in which they were added."""

    __slots__ = ("_events", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        """The simulated time in seconds."""
        self._events: list[tuple[float, int, Callable[[Any], object], Any]] = []
        self._number = 0

    def add(self, time: float, handler: Callable[[Any], object], argument: Any) -> None:
        """Calls `handler(argument)` at `time`, which must not be in the past."""
        self._number += 1
        heappush(self._events, (time, self._number, handler, argument))

    def clear(self) -> None:
        """Drops all events, so that `run` returns."""
        self._events.clear()

    def run(self) -> None:
        """Runs all events, including those that handlers add."""
        events = self._events
        while events:
            self.now, _, handler, argument = heappop(events)
            handler(argument)
