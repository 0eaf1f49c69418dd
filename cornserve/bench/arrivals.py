"""When requests are sent in an open loop: as clients come that know nothing of one another."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random


def arrivals(rate: float, burstiness: float, random: Random) -> Iterator[float]:
    """Seconds since the start, for ever.

    Args:
        rate: requests per second, on average.
        burstiness: how evenly they come: the shape of the Gamma distribution of the gaps. 1: a Poisson process;
            below 1: in bursts; far above 1: like a clock.
    """
    now = 0.0
    while True:
        now += random.gammavariate(burstiness, 1 / (rate * burstiness))
        yield now
