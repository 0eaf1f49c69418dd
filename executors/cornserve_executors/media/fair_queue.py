"""Who is next, where many wait that belong to few."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A queue in rounds: in each, every owner has one turn, in the order in which they came.

    Who comes anew has a turn in the present round, however many items another one has put there before. This is
    start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) with all items of equal weight.
    """

    def __init__(self) -> None:
        self._items: list[tuple[int, int, Hashable, Item]] = []
        self._numbers = count()
        self._round = 0
        self._last_rounds: dict[Hashable, int] = {}
        """Of each owner who waits: when its last item has its turn."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item, owner: Hashable) -> None:
        turn = max(self._round, self._last_rounds.get(owner, -1) + 1)
        self._last_rounds[owner] = turn
        heappush(self._items, (turn, next(self._numbers), owner, item))

    def next(self) -> Item:
        """Whose turn it is. Raises `IndexError` if nobody waits."""
        return self._items[0][-1]

    def take(self) -> Item:
        """Takes out whose turn it is."""
        turn, _, owner, item = heappop(self._items)
        self._round = turn
        if self._last_rounds[owner] == turn:
            del self._last_rounds[owner]
        return item
