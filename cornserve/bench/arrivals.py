"""Arrival times of requests in an open loop, like those of independent clients."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random


def arrivals(rate: float, burstiness: float, random: Random) -> Iterator[float]:
    """Yields arrival times in seconds since the start, forever.

    Args:
        rate: requests per second, on average.
        burstiness: the shape of the Gamma distribution of the gaps. 1 is a Poisson process, lower values produce
            bursts, and far higher values regular intervals.
    """
    now = 0.0
    while True:
        now += random.gammavariate(burstiness, 1 / (rate * burstiness))
        yield now
