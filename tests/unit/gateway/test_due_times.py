"""The due times of a request's invocations."""

from __future__ import annotations

import pytest

from cornserve.app.settings import LatencyTargetSettings
from cornserve.gateway.observe.request_stats import AppStats, RequestStats

SECOND = 1_000_000
ARRIVED = 1_700_000_000 * SECOND
"""Microseconds since 1970."""


def _app(**targets: float) -> AppStats:
    stats = AppStats()
    stats.set_targets(LatencyTargetSettings.model_validate(targets))
    return stats


def _dues(app: AppStats, images: int) -> list[float]:
    """Returns the seconds after which the images of one request are due."""
    request = RequestStats(app)
    return [(request.due_us("encoder", ARRIVED, 256) - ARRIVED) / SECOND for _ in range(images)]


def test_the_last_images_of_a_large_request_are_due_after_those_of_a_small_one() -> None:
    app = _app(ttft_seconds=4)
    assert _dues(app, 16)[-1] == pytest.approx(4, rel=0.01)
    assert _dues(app, 1) == [pytest.approx(4 / 16, rel=0.05)]
    large = _dues(app, 16)
    assert large == sorted(large)
    assert large[3] == pytest.approx(1, rel=0.05)


def test_groups_have_separate_sizes() -> None:
    app = _app(ttft_seconds=4)
    request = RequestStats(app)
    request.due_us("encoder", ARRIVED, 100_000)
    assert request.due_us("llm", ARRIVED, 10) == ARRIVED + 4 * SECOND


def test_the_end_to_end_target_counts_without_another_one() -> None:
    assert _dues(_app(end_to_end_seconds=7), 1) == [7]
    assert _dues(_app(ttft_seconds=1, end_to_end_seconds=7), 1) == [1]


def test_apps_without_a_target_of_the_first_output_have_no_due_times() -> None:
    assert RequestStats(_app(tbt_seconds=1)).due_us("llm", ARRIVED, 1) == 0
    assert RequestStats(AppStats()).due_us("llm", ARRIVED, 1) == 0


def test_sizes_of_groups_that_have_left_are_forgotten() -> None:
    app = _app(ttft_seconds=4)
    _dues(app, 16)
    app.retain_groups({"llm"}, {})
    assert _dues(app, 1) == [4]
