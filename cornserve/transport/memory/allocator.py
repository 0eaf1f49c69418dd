"""Allocates runs of pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class PageAllocator:
    """First fit from the lowest page, because recently used pages are likely in the processor's cache.

    Adjacent free runs are merged.
    """

    def __init__(self, first: int, count: int) -> None:
        self._starts = [first] if count else []
        self._counts = {first: count} if count else {}
        self.free_pages = count

    def allocate(self, count: int) -> int | None:
        """Returns the first of `count` adjacent pages, or None if no free run is long enough."""
        if count > self.free_pages:
            return None
        for index, start in enumerate(self._starts):
            available = self._counts[start]
            if available >= count:
                self._shrink(index, start, available, count)
                self.free_pages -= count
                return start
        return None

    @property
    def runs(self) -> list[range]:
        """The free runs, in order."""
        return [range(start, start + self._counts[start]) for start in self._starts]

    def contains(self, start: int, count: int) -> bool:
        """Returns whether all of these pages are free."""
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and start + count <= self._starts[index] + self._counts[self._starts[index]]

    def remove(self, start: int, count: int) -> None:
        """Allocates these pages, which are free."""
        first = self._starts[bisect_right(self._starts, start) - 1]
        end = first + self._counts[first]
        self._counts[first] = start - first
        if start == first:
            self._starts.remove(first)
            del self._counts[first]
        self.free_pages -= end - start
        if end > start + count:
            self.free(start + count, end - start - count)

    def free(self, start: int, count: int) -> None:
        self.free_pages += count
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == start + count:
            count += self._counts.pop(self._starts.pop(index))
        if index:
            previous = self._starts[index - 1]
            if previous + self._counts[previous] == start:
                self._counts[previous] += count
                return
        insort(self._starts, start)
        self._counts[start] = count

    def _shrink(self, index: int, start: int, available: int, count: int) -> None:
        del self._counts[start]
        if available == count:
            del self._starts[index]
        else:
            self._starts[index] = start + count
            self._counts[start + count] = available - count
