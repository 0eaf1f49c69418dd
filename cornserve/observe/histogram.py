"""A histogram for code that counts every request and every token.

prometheus_client's histogram takes six times as long to observe a value, because it locks and compares with one bound
after the other. Only one thread may observe values here; other threads may read them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from time import perf_counter

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Bounds of durations, from one step of a small engine to a request's deadline."""

TOKENS = tuple(1 << power for power in range(21))
"""Bounds of numbers of tokens."""

REAL_TIME_FACTORS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10)
"""Bounds of real-time factors. Speech above 1 takes longer to generate than to play."""


class Histogram:
    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    @property
    def counts(self) -> Sequence[int]:
        """The observations in each bucket, in the order of the bounds, and above the last bound."""
        return self._counts

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @contextmanager
    def time(self) -> Iterator[None]:
        """Observes the seconds that the block takes, unless it fails."""
        started = perf_counter()
        yield
        self.observe(perf_counter() - started)

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(self._counts), strict=True)), self._sum)

    def family(self, name: str, help: str) -> HistogramMetricFamily:
        """Returns the metric of this histogram alone, without labels."""
        family = HistogramMetricFamily(name, help)
        self.add_to(family)
        return family


def quantile(counts: Mapping[int, int], share: float, bounds: Sequence[float] = SECONDS) -> float | None:
    """Returns a quantile like Prometheus's `histogram_quantile`, or None without an observation.

    It interpolates in the bucket that contains it. Above the last bound, it is the last bound.

    Args:
        counts: the observations by bucket.
        share: the share of the observations below the quantile.
    """
    rank = share * sum(counts.values())
    below = 0
    for bucket, count in sorted(counts.items()):
        if count and below + count >= rank:
            if bucket >= len(bounds):
                return bounds[-1]
            start = bounds[bucket - 1] if bucket else 0.0
            return start + (bounds[bucket] - start) * (rank - below) / count
        below += count
    return None
