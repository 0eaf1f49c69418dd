"""Holds requests until those that they depend on have ended."""

from __future__ import annotations

from collections.abc import Callable

from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.simulated_request import SimulatedRequest


class DependentRequests:
    """Passes each request on at its arrival, or later, when the requests before it have ended.

    Args:
        arrive: gets each request. Its `arrival` is then the time at which it is sent.
    """

    def __init__(self, events: EventQueue, arrive: Callable[[SimulatedRequest], object]) -> None:
        self._events = events
        self._arrive = arrive
        self._ends: dict[str, float] = {}
        self._missing: dict[SimulatedRequest, int] = {}
        """The held requests, with the number of requests for which they wait."""
        self._waiting: dict[str, list[SimulatedRequest]] = {}
        self._delayed = 0

    @property
    def is_empty(self) -> bool:
        return not self._missing and not self._delayed

    def add(self, request: SimulatedRequest) -> None:
        """Takes a request that arrives now."""
        missing = [name for name in request.after if name not in self._ends]
        if missing:
            self._missing[request] = len(missing)
            for name in missing:
                self._waiting.setdefault(name, []).append(request)
        else:
            self._send(request)

    def end(self, request: SimulatedRequest) -> None:
        """Counts a request that has ended, was refused or has failed."""
        if request.name is None:
            return
        self._ends[request.name] = self._events.now
        for waiting in self._waiting.pop(request.name, ()):
            self._missing[waiting] -= 1
            if not self._missing[waiting]:
                del self._missing[waiting]
                self._send(waiting)

    def _send(self, request: SimulatedRequest) -> None:
        last = max((self._ends[name] for name in request.after), default=0.0)
        time = max(self._events.now, last + request.delay) if request.after else self._events.now
        if time > self._events.now:
            self._delayed += 1
            self._events.add(time, self._send_delayed, request)
        else:
            request.arrival = max(request.arrival, self._events.now) if request.after else request.arrival
            self._arrive(request)

    def _send_delayed(self, request: SimulatedRequest) -> None:
        self._delayed -= 1
        request.arrival = self._events.now
        self._arrive(request)
