"""Whether enough requests meet the latency targets of an app."""

from __future__ import annotations

import pytest

from cornserve_policies.attainment import TargetAttainment


def attainment(met: int, missed: int) -> TargetAttainment:
    """Returns the attainment with these requests in each 10 seconds of a minute."""
    found = TargetAttainment(60.0, 0.0)
    for now in range(10, 70, 10):
        found.add({"ttft": met, "e2e": met + missed}, {"ttft": missed}, now)
    return found


@pytest.mark.parametrize(
    ("met", "missed", "expected"),
    [
        (100, 20, "83% of 720 requests met the ttft target in 60 s, not 95%"),
        (95, 5, None),
        (93, 7, None),  # chance
        (0, 3, None),  # too few requests
        (0, 4, "0% of 24 requests met the ttft target in 60 s, not 95%"),
    ],
)
def test_a_target_is_missed_beyond_chance(met: int, missed: int, expected: str | None) -> None:
    assert attainment(met, missed).find_missed(0.0, 60.0) == expected


def test_requests_before_the_last_change_do_not_count() -> None:
    missed = attainment(0, 20)

    assert missed.find_missed(1.0, 60.0) is None
    assert missed.find_missed(0.0, 59.0) is None
    missed.add({}, {"ttft": 20}, 70.0)
    assert missed.find_missed(10.0, 70.0) is not None
