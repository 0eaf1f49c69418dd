"""Invocations with late binding that wait for capacity on a replica of their executor group [M §4.3, T §4.3]."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

MAX_QUEUED: Final = 1024
"""The number of invocations of one executor group that a gateway queues at most. It refuses further ones."""

Item = TypeVar("Item")


class Arrival(NamedTuple):
    """Orders invocations by the arrival of their requests."""

    arrived_us: int
    request_id: str
    invocation: int
    """The index within the request."""


class InvocationQueue(Generic[Item]):
    """A bounded queue, in the order of arrival.

    Args:
        limit: the length of the queue at which further invocations are refused.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._arrivals: list[Arrival] = []
        """Sorted, earliest first."""
        self._items: dict[Arrival, Item] = {}

    def __len__(self) -> int:
        return len(self._arrivals)

    def add(self, arrival: Arrival, item: Item) -> bool:
        """Adds an invocation. Returns False if the queue is full."""
        if len(self._arrivals) >= self._limit:
            return False
        insort(self._arrivals, arrival)
        self._items[arrival] = item
        return True

    def remove(self, arrival: Arrival) -> None:
        """Removes an invocation. Does nothing if the queue does not contain it."""
        if self._items.pop(arrival, None) is not None:
            del self._arrivals[bisect_left(self._arrivals, arrival)]

    def start(self, try_start: Callable[[Item], bool]) -> None:
        """Starts invocations until one finds no capacity. Later ones wait for it, so that none waits forever.

        Args:
            try_start: returns whether the invocation leaves the queue.
        """
        while self._arrivals:
            first = self._arrivals[0]
            if not try_start(self._items[first]):
                return
            self.remove(first)
