"""Invocations of apps with latency targets are due in proportion to their size, and none waits without a limit."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cornserve_policies.due_times import SizeTargets

TARGET = 2.0

ARRIVALS = st.lists(
    st.tuples(st.floats(0, 3), st.integers(0, 100_000), st.floats(0.001, 5)), min_size=1, max_size=60
).map(lambda gaps: [(sum(gap for gap, _, _ in gaps[: n + 1]), *gaps[n][1:]) for n in range(len(gaps))])
"""Arrivals in their order, with tokens and service times."""


@given(ARRIVALS)
def test_each_invocation_is_due_after_its_arrival_and_at_most_by_the_target(
    arrivals: Sequence[tuple[float, int, float]],
) -> None:
    targets = SizeTargets(TARGET)
    for arrived, tokens, _ in arrivals:
        assert arrived < targets.due(arrived, tokens) <= arrived + TARGET * (1 + 1e-9)


@given(ARRIVALS)
def test_an_invocation_waits_for_no_request_that_arrives_later_than_the_target(
    arrivals: Sequence[tuple[float, int, float]],
) -> None:
    """One server, earliest deadline first: large inputs are overtaken, but not without a limit."""
    targets = SizeTargets(TARGET)
    pending = [(arrived, targets.due(arrived, tokens), seconds) for arrived, tokens, seconds in arrivals]
    waiting: list[tuple[float, float, float]] = []
    now, served, order = 0.0, 0, list[float]()
    while len(order) < len(pending):
        while served < len(pending) and pending[served][0] <= now:
            arrived, due, seconds = pending[served]
            heappush(waiting, (due, arrived, seconds))
            served += 1
        if not waiting:
            now = pending[served][0]
            continue
        _, arrived, seconds = heappop(waiting)
        order.append(arrived)
        now += seconds
    for position, arrived in enumerate(order):
        assert all(other <= arrived + TARGET + 1e-6 for other in order[:position])


def test_small_inputs_are_due_before_large_ones() -> None:
    targets = SizeTargets(TARGET)
    assert targets.due(0.0, 16_000) == TARGET
    assert targets.due(0.5, 1000) == pytest.approx(0.5 + TARGET / 16, rel=0.01)
    assert targets.due(0.5, 0) == 0.5 + TARGET, "an unknown size counts as the largest"


def test_the_largest_size_is_forgotten() -> None:
    targets = SizeTargets(TARGET)
    targets.due(0.0, 16_000)
    for _ in range(10_000):
        targets.due(0.0, 100)
    assert targets.due(0.0, 100) == TARGET
