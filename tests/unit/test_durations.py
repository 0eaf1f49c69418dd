"""Times for users."""

from __future__ import annotations

import pytest

from cornserve.durations import describe_duration, describe_estimate


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 second"), (1.2, "2 seconds"), (119, "119 seconds"), (120, "2 minutes"), (61_000, "1,017 minutes")],
)
def test_a_duration_is_in_seconds_or_minutes(seconds: float, text: str) -> None:
    assert describe_duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "10 seconds"), (41, "50 seconds"), (195, "4 minutes")])
def test_an_estimate_is_in_tens_of_seconds_or_minutes(seconds: float, text: str) -> None:
    assert describe_estimate(seconds) == text
