"""The arrivals of requests, by type, in windows of time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """The requests that arrived in a window of `seconds`, by type."""

    seconds: float
    counts: Mapping[str, int]
    is_complete: bool = True
    """Whether the requests of all gateways are counted. Otherwise, more have arrived."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.total / self.seconds

    def rate_bound(self, deviations: float) -> float:
        """Returns the rate plus a number of its standard deviations, which may be negative.

        The standard deviation is that of Poisson arrivals.
        """
        return (self.total + deviations * sqrt(self.total)) / self.seconds


class _Arrived(NamedTuple):
    """The requests that arrived between two times."""

    start: float
    end: float
    counts: Mapping[str, int]
    is_complete: bool


class ArrivalHistory:
    """The arrivals of the last `seconds`.

    Args:
        start: the time at which the counting begins.
    """

    def __init__(self, seconds: float, start: float) -> None:
        self._seconds = seconds
        self._start = start
        self._arrivals: deque[_Arrived] = deque()

    def add(self, arrived: Mapping[str, int], now: float, *, is_complete: bool = True) -> None:
        """Adds the requests that arrived, by type, since the last call.

        Args:
            is_complete: whether the requests of all gateways are counted.
        """
        last = self._arrivals[-1].end if self._arrivals else self._start
        self._arrivals.append(_Arrived(last, now, dict(arrived), is_complete))
        while self._arrivals[0].end <= now - self._seconds:
            self._arrivals.popleft()

    def window(self, seconds: float, end: float) -> WindowCounts | None:
        """Returns the requests of the `seconds` before `end`. None if the counting began later.

        Counts that begin before the window belong to it completely, and the window is longer by as much: a late count
        is not taken for more load.
        """
        if end - seconds < self._start:
            return None
        counts, start, all_complete = Counter[str](), end - seconds, True
        for arrived in reversed(self._arrivals):
            if arrived.end <= end - seconds:
                break
            if arrived.end <= end:
                for kind, count in arrived.counts.items():  # Counter.update() takes several times as long.
                    counts[kind] += count
                start = min(start, arrived.start)
                all_complete = all_complete and arrived.is_complete
        return WindowCounts(end - start, counts, all_complete)
