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
def test_arrivals_have_the_given_rate_and_burstiness(burstiness: float) -> None:
    observed = gaps(burstiness)
    assert fmean(observed) == pytest.approx(0.1, rel=0.05)
    assert pstdev(observed) / fmean(observed) == pytest.approx(burstiness**-0.5, rel=0.05)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    assert gaps(1) == gaps(1)
    assert gaps(1) != gaps(1, seed=2)
