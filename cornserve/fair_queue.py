"""A fair queue: owners that queue many items do not delay owners that queue few."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A round-robin queue: each round serves one item of each owner, in the order in which the items were pushed.

    The first item of a new owner joins the current round, however many items other owners have queued. This is
    start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) in which all items have equal weight.
    """

    def __init__(self) -> None:
        self._items: list[tuple[int, int, Hashable, Item]] = []
        self._sequence = count()
        self._round = 0
        self._last_rounds: dict[Hashable, int] = {}
        """The round of each waiting owner's last item."""

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: Item, owner: Hashable) -> None:
        round = max(self._round, self._last_rounds.get(owner, -1) + 1)
        self._last_rounds[owner] = round
        heappush(self._items, (round, next(self._sequence), owner, item))

    def peek(self) -> Item:
        """Returns the next item and leaves it in the queue. Raises `IndexError` if the queue is empty."""
        return self._items[0][-1]

    def pop(self) -> Item:
        """Removes and returns the next item. Raises `IndexError` if the queue is empty."""
        round, _, owner, item = heappop(self._items)
        self._round = round
        if self._last_rounds[owner] == round:
            del self._last_rounds[owner]
        return item
