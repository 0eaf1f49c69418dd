"""Runs of pages: which are free."""

from __future__ import annotations

from bisect import bisect_left, insort


class Allocator:
    """First fit, from the lowest page: what was used last is still in the processor's cache.

    Free neighbours are one run, so what is given back can be had in any size again.
    """

    def __init__(self, first: int, count: int) -> None:
        self._starts = [first] if count else []
        self._counts = {first: count} if count else {}
        self.free = count

    def take(self, count: int) -> int | None:
        """The first of `count` neighbouring pages, or None if there are not so many."""
        if count > self.free:
            return None
        for index, start in enumerate(self._starts):
            available = self._counts[start]
            if available >= count:
                self._shrink(index, start, available, count)
                self.free -= count
                return start
        return None

    def give_back(self, start: int, count: int) -> None:
        self.free += count
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == start + count:
            count += self._counts.pop(self._starts.pop(index))
        if index and self._end(self._starts[index - 1]) == start:
            self._counts[self._starts[index - 1]] += count
        else:
            insort(self._starts, start)
            self._counts[start] = count

    def _shrink(self, index: int, start: int, available: int, count: int) -> None:
        del self._counts[start]
        if available == count:
            del self._starts[index]
        else:
            self._starts[index] = start + count
            self._counts[start + count] = available - count

    def _end(self, start: int) -> int:
        return start + self._counts[start]
