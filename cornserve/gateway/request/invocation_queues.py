"""Starts invocations with late binding when a replica of their executor group has capacity for them.

The load of a replica changes with its events, which start the next invocations at once. The load of other gateways
counts for a limited time, so a timer repeats the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cornserve_policies.invocation_queue import MAX_QUEUED, Arrival, InvocationQueue
from cornserve_policies.retries import PLACEMENT_SECONDS

TryStart = Callable[[], bool]
"""Starts an invocation if a replica has capacity. Returns whether the invocation leaves the queue."""


class InvocationQueues:
    """The queues of a gateway, by executor group."""

    def __init__(self) -> None:
        self._queues: dict[str, InvocationQueue[TryStart]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """The next attempt of each group."""

    def lengths(self) -> dict[str, int]:
        """Returns the number of invocations that wait, by group. Can be called in any thread."""
        return {group: len(queue) for group, queue in [*self._queues.items()]}

    def is_empty(self, group: str) -> bool:
        return group not in self._queues

    def add(self, group: str, arrival: Arrival, try_start: TryStart) -> bool:
        """Queues an invocation. Returns False if the queue is full."""
        queue = self._queues.setdefault(group, InvocationQueue(MAX_QUEUED))
        if not queue.add(arrival, try_start):
            return False
        if group not in self._timers:
            self._serve_after(group, PLACEMENT_SECONDS)
        return True

    def remove(self, group: str, arrival: Arrival) -> None:
        """Removes an invocation. Does nothing if it is not queued."""
        if group in self._queues:
            self._queues[group].remove(arrival)
            self.serve_soon(group)  # It may have been the first one.

    def serve_soon(self, group: str) -> None:
        """Starts the next invocations, because a replica may have capacity."""
        if group in self._queues:
            self._timers[group].cancel()
            self._serve_after(group, 0)

    def _serve_after(self, group: str, seconds: float) -> None:
        self._timers[group] = asyncio.get_running_loop().call_later(seconds, self._serve, group)

    def _serve(self, group: str) -> None:
        queue = self._queues[group]
        self._serve_after(group, PLACEMENT_SECONDS)  # An invocation that starts may fail, and make capacity at once.
        queue.start(lambda try_start: try_start())
        if not queue:
            self._timers.pop(group).cancel()
            del self._queues[group]
