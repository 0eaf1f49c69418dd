"""A queue in which items with a due time are served earliest first, and others fairly between them."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

from cornserve.fair_queue import FairQueue

Item = TypeVar("Item")

DEFAULT_TARGET_US: Final = 10_000_000
"""Microseconds from an arrival until a request without a due time counts as due, so that others cannot delay it without
a limit."""


class DueTime(NamedTuple):
    """When the first output of a request is due.

    Args:
        arrived_us: the arrival, in microseconds since 1970.
        due_us: the due time, by the same clock. 0: the app of the request has no target.
    """

    arrived_us: int = 0
    due_us: int = 0

    @property
    def latest_us(self) -> int:
        """The due time, or the one that counts without a target."""
        return self.due_us or self.arrived_us + DEFAULT_TARGET_US


NO_DUE_TIME: Final = DueTime()


class DueQueue(Generic[Item]):
    """Serves items with due times in their order. Items without one are served round-robin by their owners.

    The next item is the first one of the two kinds that is due earlier.
    """

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Item]] = []
        self._fair = FairQueue[tuple[int, Item]]()
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._due) + len(self._fair)

    def push(self, item: Item, owner: Hashable, due: DueTime) -> None:
        if due.due_us:
            heappush(self._due, (due.due_us, next(self._sequence), item))
        else:
            self._fair.push((due.latest_us, item), owner)

    def peek(self) -> Item:
        """Returns the next item and leaves it in the queue. Raises `IndexError` if the queue is empty."""
        return self._due[0][-1] if self._has_due_first() else self._fair.peek()[-1]

    def pop(self) -> Item:
        """Removes and returns the next item. Raises `IndexError` if the queue is empty."""
        return heappop(self._due)[-1] if self._has_due_first() else self._fair.pop()[-1]

    def _has_due_first(self) -> bool:
        return bool(self._due) and (not self._fair or self._due[0][0] <= self._fair.peek()[0])
