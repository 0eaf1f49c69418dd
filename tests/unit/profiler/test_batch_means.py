"""Confidence intervals of throughputs."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest

from cornserve.profiler.batch_means import estimate_rate


def test_regular_completions_have_an_exact_rate() -> None:
    estimate = estimate_rate([0.25 * number for number in range(1, 101)], concurrency=1)
    assert estimate is not None
    assert estimate.rate == pytest.approx(4)
    assert estimate.half_width < 1e-9


def test_requests_that_complete_at_once_have_an_exact_rate() -> None:
    ends = [0.5 * (1 + number // 8) for number in range(8 * 7)]
    estimate = estimate_rate(ends, concurrency=8)
    assert estimate is not None
    assert estimate.rate == pytest.approx(16)
    assert estimate.half_width < 1e-9


def test_requests_that_wait_for_long_do_not_increase_the_rate() -> None:
    """Of eight requests in flight, four never complete."""
    estimate = estimate_rate([0.1 * number for number in range(1, 101)], concurrency=8)
    assert estimate is not None
    assert estimate.rate == pytest.approx(10)


def test_the_time_in_which_the_system_fills_does_not_count() -> None:
    slow_start = [float(number) for number in range(1, 20)]
    steady = [20 + 0.1 * number for number in range(81)]
    estimate = estimate_rate([*slow_start, *steady], concurrency=1)
    assert estimate is not None
    assert estimate.rate == pytest.approx(10)


@pytest.mark.parametrize("concurrency", [1, 16])
def test_the_interval_contains_the_rate_in_about_95_percent_of_the_measurements(concurrency: int) -> None:
    covered = 0
    for seed in range(400):
        random = Random(seed)
        ends = list(accumulate(random.expovariate(5) for _ in range(400)))
        estimate = estimate_rate(ends, concurrency)
        assert estimate is not None
        covered += abs(estimate.rate - 5) <= estimate.rate * estimate.half_width
    assert 0.91 <= covered / 400 <= 0.98


@pytest.mark.parametrize("completions", [[], [1.0], [0.1 * number for number in range(20)], [1.0] * 100])
def test_too_few_completions_have_no_rate(completions: list[float]) -> None:
    assert estimate_rate(completions, concurrency=1) is None
