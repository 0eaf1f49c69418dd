"""The expected time of measurements, and the parts of their budget."""

from __future__ import annotations

import pytest

from cornserve.profiler.cost_estimate import MeasurementCost
from cornserve.profiler.progress import ProfilingProgress
from cornserve.profiler.remaining_time import RemainingTime

UNKNOWN = [MeasurementCost("encoder+llm", 1)] * 3 + [MeasurementCost("llm", 1), MeasurementCost("encoder", 1)]
"""Five mixes of three options."""


def test_the_time_is_that_of_the_starts_and_the_mixes() -> None:
    assert RemainingTime.of(UNKNOWN, budget=600).seconds(0) == 3 * 15 + 5 * 30
    known = [MeasurementCost("llm", 1, start=60, load=20), MeasurementCost("llm", 1, start=60, load=20)]
    assert RemainingTime.of(known, budget=600).seconds(0) == 60 + 2 * 20


def test_the_time_follows_the_steps_that_have_ended() -> None:
    remaining = RemainingTime.of(UNKNOWN, budget=600)
    remaining.end_step(5)
    assert remaining.seconds(0) == 5 * 30 + 2 * 5
    assert remaining.seconds(10) == 5 * 30 + 2 * 5 - 10
    assert remaining.seconds(100) == 4 * 30 + 2 * 5
    remaining.end_step(12)
    assert remaining.seconds(0) == 4 * 12 + 2 * 5
    assert remaining.limit(3) == 600 - 5 - 12 - 3


def test_the_budget_limits_the_time() -> None:
    assert RemainingTime.of(UNKNOWN, budget=60).seconds(0) == pytest.approx(60)
    on_four = [MeasurementCost("llm", 4)]
    assert RemainingTime.of(on_four, budget=600).seconds(0) == 15 + 30
    assert RemainingTime.of(on_four, budget=120).seconds(0) == pytest.approx(30)
    assert RemainingTime.of(on_four, budget=120).limit(0) == 30


@pytest.mark.parametrize(
    ("start", "seconds"), [(20, (600 - 3 * 20) / 5), (150, (600 - 3 * 150) / 5), (300, 300 / 5), (600, 0), (601, 0)]
)
def test_mixes_share_what_the_starts_leave_or_else_all(start: float, seconds: float) -> None:
    remaining = RemainingTime.of(UNKNOWN, budget=600)
    remaining.end_step(start)
    assert remaining.load_limit == pytest.approx(seconds)


def test_the_time_that_is_left_is_shown() -> None:
    shown: list[str] = []
    progress = ProfilingProgress(RemainingTime.of(UNKNOWN, 600), lambda step, details: shown.append(step + details))
    progress.show("encoder+llm starts")
    progress.end_step()
    progress.show("encoder+llm with llm", ": 9 requests/s")

    assert shown == [
        "encoder+llm starts, about 4 minutes left, at most 10 minutes",
        "encoder+llm with llm: 9 requests/s, about 3 minutes left, at most 10 minutes",
    ]


def test_a_start_may_take_all_of_the_time() -> None:
    assert RemainingTime.of(UNKNOWN, budget=600).start_limit == 600
    assert RemainingTime.of([MeasurementCost("llm", 4)], budget=600).start_limit == 150
