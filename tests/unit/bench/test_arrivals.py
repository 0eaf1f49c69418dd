from __future__ import annotations

from itertools import islice, pairwise
from random import Random
from statistics import fmean, pstdev

import pytest

from cornserve.bench.arrivals import arrivals

COUNT = 20_000


def gaps(burstiness: float, seed: int = 1) -> list[float]:
    times = [0.0, *islice(arrivals(10, burstiness, Random(seed)), COUNT)]
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize("burstiness", [0.25, 1, 4])
def test_requests_come_at_the_rate_and_as_evenly_as_was_said(burstiness: float) -> None:
    seen = gaps(burstiness)
    assert fmean(seen) == pytest.approx(0.1, rel=0.05)
    assert pstdev(seen) / fmean(seen) == pytest.approx(burstiness**-0.5, rel=0.05)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    assert gaps(1) == gaps(1)
    assert gaps(1) != gaps(1, seed=2)
