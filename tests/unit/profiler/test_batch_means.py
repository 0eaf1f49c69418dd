"""Confidence intervals of throughputs."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest

from cornserve.profiler.batch_means import estimate_rate, rough_rate


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


@pytest.mark.parametrize("completions", [1, 3, 6, 20])
def test_few_completions_have_a_rough_rate_with_a_wide_interval(completions: int) -> None:
    covered = 0
    for seed in range(400):
        random = Random(seed)
        found = rough_rate([*accumulate(random.expovariate(5) for _ in range(completions))], concurrency=1)
        covered += abs(found.rate - 5) <= found.rate * found.half_width
    assert covered / 400 >= 0.9


@pytest.mark.parametrize(("completions", "half_width"), [(16, 2.8), (32, 2.0), (48, 0.01), (80, 0.01)])
def test_rounds_of_an_engine_have_a_rough_rate(completions: int, half_width: float) -> None:
    """The engine completes 16 requests at once, every three seconds."""
    ends = [3.0 * (1 + number // 16) for number in range(completions)]
    assert estimate_rate(ends, 16) is None
    found = rough_rate(ends, 16)
    assert found.rate == pytest.approx(16 / 3)
    assert found.half_width <= half_width
