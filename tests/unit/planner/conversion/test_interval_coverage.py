"""Intervals of executors whose times are additive, overlap or interfere. These seeds did not calibrate the planner."""

from __future__ import annotations

import pytest

from benchmarks.harness.planner.intervals import KINDS, Kind, coverage
from tests.unit.planner.examples import examples

LEAST = 0.85
"""The share of true values that the intervals must contain."""
WIDTHS = {"additive": (0.272, 0.145), "overlapping": (0.255, 0.148), "interfering": (0.268, 0.154)}
"""Median widths of the 95 % intervals of times and rates that follow from the errors of the measurements only."""
WIDEST = 2.0
"""The median width relative to these."""


@pytest.mark.parametrize("kind", KINDS)
@examples(24, 240)
def test_intervals_contain_the_truth_and_are_narrow(kind: Kind, examples: int) -> None:
    times, rate = coverage(kind, range(1, 2 * examples, 2))

    assert min(times.inside, rate.inside) >= LEAST, (times, rate)
    assert times.width <= WIDEST * WIDTHS[kind][0], times
    assert rate.width <= WIDEST * WIDTHS[kind][1], rate
