"""Adaptations follow changes of the load, and not its noise."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cornserve_policies.adaptation import (
    HISTORY_SECONDS,
    AdaptationLimits,
    MixtureChange,
    ObservedRateAdaptation,
    PlanCapacity,
    RunningMixture,
    find_mix_shift,
    is_better,
)
from cornserve_policies.arrivals import ArrivalHistory, WindowCounts

STEP = 5
"""Seconds between two decisions."""

CELL_RATES = {1: 2.0, 4: 10.0}


def solve(rate: float) -> Mapping[int, int]:
    large, rest = divmod(rate, CELL_RATES[4])
    small = -(-rest // CELL_RATES[1])
    counts = {4: int(large), 1: int(small)} if small < 4 else {4: int(large) + 1}
    return {size: count for size, count in counts.items() if count}


def served(counts: Mapping[int, int]) -> float:
    return sum(CELL_RATES[size] * count for size, count in counts.items())


class SimulatedApp:
    """An app whose load changes, and which adapts."""

    def __init__(self, rate: float, limits: AdaptationLimits | None = None, seed: int = 0) -> None:
        counts = solve(rate)
        self.running = RunningMixture(counts, served(counts), 0)
        self.changes: list[tuple[float, MixtureChange]] = []
        self._policy = ObservedRateAdaptation(limits or AdaptationLimits())
        self._arrivals = ArrivalHistory(HISTORY_SECONDS, 0)
        self._random = random.Random(seed)
        self._now = 0

    def skip(self, seconds: int) -> None:
        """Lets time pass without a count."""
        self._now += seconds

    def run(self, rate: float, seconds: int, *, is_complete: bool = True, arrived_before: int = 0) -> None:
        for _ in range(0, seconds, STEP):
            self._now += STEP
            mean = rate * STEP
            count = sum(self._random.random() < mean / 1000 for _ in range(1000))  # nearly Poisson
            count, arrived_before = count + arrived_before, 0
            self._arrivals.add({"text": count}, self._now, is_complete=is_complete)
            change = self._policy.decide(self.running, self._arrivals, self._now, solve)
            if change is not None:
                self.changes.append((self._now, change))
                self.running = RunningMixture(change.counts, served(change.counts), self._now)


@pytest.mark.parametrize(
    "rate", [0.4, pytest.param(3.0, marks=pytest.mark.slow), pytest.param(9.0, marks=pytest.mark.slow), 28.0]
)
def test_an_hour_of_noise_changes_nothing(rate: float) -> None:
    app = SimulatedApp(rate)

    app.run(rate, 3600)

    assert app.changes == []


def test_a_doubled_load_is_followed_within_the_window_and_the_dwell_time() -> None:
    app = SimulatedApp(9)
    app.run(9, 1200)

    app.run(18, 200)

    assert app.running.rate >= 18
    assert app.changes[0][0] <= 1200 + 60
    assert {size: count for size, count in app.running.counts.items() if count} == solve(18)
    assert "requests/s arrived in 20 s, and the running cells serve 10" in app.changes[0][1].reason


def test_a_halved_load_removes_cells_after_it_has_lasted() -> None:
    app = SimulatedApp(18)
    app.run(18, 1200)

    app.run(9, 840)
    assert app.changes == []

    app.run(9, 180)
    assert 9 <= app.running.rate <= 12


def test_a_short_dip_removes_nothing() -> None:
    app = SimulatedApp(18)
    app.run(18, 1200)

    app.run(2, 600)
    app.run(18, 1200)

    assert app.changes == []


def test_incomplete_counts_remove_no_cells_but_add_some() -> None:
    app = SimulatedApp(18)
    app.run(18, 1200)

    app.run(2, 3000, is_complete=False)
    assert app.changes == []

    app.run(40, 200, is_complete=False)
    assert app.running.rate >= 40


def test_a_late_count_is_no_burst() -> None:
    app = SimulatedApp(9)
    app.run(9, 1200)

    app.skip(40)
    app.run(9, 1200, arrived_before=9 * 40)

    assert app.changes == []


def test_shorter_windows_follow_sooner() -> None:
    app = SimulatedApp(90, AdaptationLimits(dwell_seconds=10, shrink_seconds=30, window_seconds=5))
    app.run(90, 100)

    app.run(180, 15)
    assert app.running.rate >= 180

    app.run(90, 60)
    assert 90 <= app.running.rate < 130


@pytest.mark.parametrize("seconds", [0.0, -1.0, 241.0])
def test_a_window_that_no_history_covers_is_rejected(seconds: float) -> None:
    with pytest.raises(ValueError, match=f"the window of {seconds:g} s"):
        AdaptationLimits(window_seconds=seconds)


def test_two_changes_are_separated_by_the_dwell_time() -> None:
    app = SimulatedApp(2, AdaptationLimits(dwell_seconds=300))

    for rate in range(4, 40, 2):
        app.run(rate, 100)

    times = [time for time, _ in app.changes]
    assert len(times) > 2
    assert all(later - earlier >= 300 for earlier, later in pairwise(times))


def test_mixtures_stay_within_the_limits() -> None:
    app = SimulatedApp(9, AdaptationLimits(min_rate=8, max_rate=12))

    app.run(30, 600)
    assert app.running.rate == served(solve(12))

    app.run(1, 3600)
    assert app.running.rate == served(solve(8))


@given(st.lists(st.integers(0, 400), min_size=1, max_size=100))
def test_equal_histories_lead_to_equal_decisions(counts: list[int]) -> None:
    def decisions() -> list[MixtureChange | None]:
        policy, history = ObservedRateAdaptation(AdaptationLimits()), ArrivalHistory(HISTORY_SECONDS, 0)
        running = RunningMixture({4: 1}, 10, 0)
        found = []
        for number, count in enumerate(counts, 1):
            history.add({"text": count}, number * 30.0)
            found.append(policy.decide(running, history, number * 30.0, solve))
        return found

    assert decisions() == decisions()


@pytest.mark.parametrize("fields", [{"min_rate": 3.0, "max_rate": 2.0}, {"dwell_seconds": 1000.0}, {"min_rate": -1.0}])
def test_limits_that_contradict_each_other_are_rejected(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="between 0 and each other"):
        AdaptationLimits(**fields)


def test_a_shift_of_the_mix_is_found() -> None:
    observed = find_mix_shift(
        {"text": 0.7, "image": 0.3}, WindowCounts(900, {"text": 450, "image": 550}), tolerance=0.1
    )

    assert observed is not None
    assert observed.shares == {"image": 0.55, "text": 0.45}
    assert observed.distance == pytest.approx(0.25)


@pytest.mark.parametrize(
    "counts", [{}, {"text": 3, "image": 4}, {"text": 680, "image": 320}, {"text": 690, "image": 300, "video": 10}]
)
def test_noise_and_small_differences_are_no_shift(counts: dict[str, int]) -> None:
    assert find_mix_shift({"text": 0.7, "image": 0.3}, WindowCounts(900, counts), tolerance=0.1) is None


def test_a_type_that_was_not_planned_is_a_shift() -> None:
    assert find_mix_shift({"text": 1.0}, WindowCounts(900, {"text": 700, "video": 300}), tolerance=0.1) is not None


@pytest.mark.parametrize(
    ("rate", "gpus", "target", "rate_now", "better"),
    [
        (30, 4, None, 20, True),
        (20.5, 4, None, 20, False),
        (20, 2, None, 20, True),  # fewer GPUs
        (19, 2, None, 20, False),  # a loss
        (30, 4, 15, 20, False),  # the target is served already
        (16, 2, 15, 20, True),  # on fewer GPUs
        (16, 6, 15, 12, True),  # the target needs more GPUs
    ],
)
def test_a_plan_is_better_by_rate_or_by_gpus(
    rate: float, gpus: int, target: float | None, rate_now: float, better: bool
) -> None:
    found, running = PlanCapacity(rate, gpus), PlanCapacity(rate_now, 4)

    assert is_better(found, running, target) is better
