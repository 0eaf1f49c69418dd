"""Replicas of an executor follow its load, and not its noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.autoscaling import LONGEST_HISTORY, ExecutorAutoscaling, ExecutorLimits, RunningReplicas

STEP = 5
"""Seconds between two decisions."""

CAPACITY = 1000.0
"""Tokens per second of a replica."""

Load = Callable[[float], float]
"""Returns the mean load, in replicas, at a time."""


class SimulatedExecutor:
    """An executor whose load changes. Its requests have 1 to 199 tokens."""

    def __init__(self, replicas: int = 1, **limits: Any) -> None:
        self.running = RunningReplicas(replicas, 0)
        self.changes: list[tuple[int, int]] = []
        """Times and numbers of replicas."""
        self.is_complete = True
        self._policy = ExecutorAutoscaling(ExecutorLimits(CAPACITY, **limits))
        self._loads = ArrivalHistory(LONGEST_HISTORY, 0)
        self._random = random.Random(0)
        self._now = 0

    def run(self, load: float | Load, seconds: int) -> None:
        for _ in range(0, seconds, STEP):
            self._now += STEP
            mean = (load(self._now) if callable(load) else load) * CAPACITY * STEP / 100
            requests = sum(self._random.random() < mean / 1000 for _ in range(1000))  # nearly Poisson
            tokens = sum(self._random.randint(1, 199) for _ in range(requests))
            self._loads.add({"llm": tokens, "other": tokens // 2}, self._now, is_complete=self.is_complete)
            change = self._policy.decide(self.running, self._loads, self._now)
            if change is not None:
                self.running = RunningReplicas(change.replicas, self._now)
                self.changes.append((self._now, change.replicas))


@pytest.mark.parametrize(
    ("load", "replicas"),
    [(0.5, 1), (6.5, 7), (12.7, 13), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1.5, 2), (2.4, 3)))],
)
def test_an_hour_of_noise_changes_nothing(load: float, replicas: int) -> None:
    executor = SimulatedExecutor(replicas)
    executor.run(load, 3600)
    assert executor.changes == []


def test_a_load_at_the_limit_of_a_replica_changes_at_most_once_in_an_hour() -> None:
    executor = SimulatedExecutor(2)
    executor.run(2.0, 3600)
    assert [replicas for _, replicas in executor.changes] == [3]


def test_a_step_is_followed_within_the_short_window() -> None:
    executor = SimulatedExecutor()
    executor.run(0.5, 600)
    executor.run(2.5, 180)
    assert executor.changes[0][0] <= 660
    assert executor.changes[-1][0] <= 780
    assert executor.running.replicas == 3


def test_a_ramp_is_followed() -> None:
    executor = SimulatedExecutor()
    executor.run(lambda now: 0.5 + 5 * now / 1800, 1800)
    assert [replicas for _, replicas in executor.changes] == [2, 3, 4, 5, 6]
    for now, replicas in executor.changes:
        assert 0.5 + 5 * now / 1800 <= replicas


def test_replicas_stop_only_when_a_quarter_of_an_hour_has_needed_fewer() -> None:
    executor = SimulatedExecutor(3)
    executor.run(2.5, 1000)
    executor.run(0.5, 895)
    assert executor.changes == []
    executor.run(0.5, 180)
    assert executor.running.replicas == 1


def test_a_burst_keeps_its_replicas_for_a_quarter_of_an_hour() -> None:
    executor = SimulatedExecutor()
    executor.run(0.5, 1200)
    executor.run(3.5, 120)
    executor.run(0.5, 900)
    assert executor.running.replicas == 4
    executor.run(0.5, 180)
    assert executor.running.replicas == 1


def test_the_mean_of_the_long_window_counts_after_a_burst() -> None:
    policy, loads = ExecutorAutoscaling(ExecutorLimits(CAPACITY)), ArrivalHistory(LONGEST_HISTORY, 0)
    for now in range(10, 310, 10):
        loads.add({"llm": 20_000 if now < 240 else 1_000}, now)
    assert policy.load(loads, 300) == pytest.approx((23 * 20_000 + 7 * 1_000) / 300)


def test_the_numbers_of_replicas_are_bounded() -> None:
    executor = SimulatedExecutor(1, min_replicas=2, max_replicas=3)
    executor.run(0.1, STEP)
    assert executor.changes == [(STEP, 2)]
    executor.run(6.0, 600)
    assert executor.running.replicas == 3
    executor.run(0.0, 1200)
    assert executor.running.replicas == 2


def test_changes_have_a_distance() -> None:
    executor = SimulatedExecutor(dwell_seconds=300)
    executor.run(lambda now: now / 100, 900)
    times = [now for now, _ in executor.changes]
    assert times == [300, 600, 900]


def test_no_replica_stops_while_a_gateway_is_unknown() -> None:
    executor = SimulatedExecutor(3)
    executor.is_complete = False
    executor.run(0.5, 2400)
    assert executor.changes == []
    executor.run(4.5, 120)
    assert executor.running.replicas == 5


def test_several_executors_are_independent() -> None:
    encoder, llm = SimulatedExecutor(), SimulatedExecutor()
    for _ in range(2):
        encoder.run(3.5, 300)
        llm.run(0.5, 300)
    assert (encoder.running.replicas, llm.running.replicas) == (4, 1)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_replicas": 0}, "0 to 64 replicas"),
        ({"min_replicas": 3, "max_replicas": 2}, "3 to 2"),
        ({"window_seconds": 0.0}, "window of 0 s"),
        ({"window_seconds": 800.0}, "window of 800 s"),
        ({"shrink_seconds": 3600.0}, "3600 s until replicas stop"),
        ({"window_seconds": 2.0}, "more than 240 windows of 2 s"),
        ({"dwell_seconds": 901.0}, "dwell time of 901 s"),
    ],
)
def test_limits_that_cannot_hold_are_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExecutorLimits(CAPACITY, **limits)
    for capacity in (0.0, 1e-308):
        with pytest.raises(ValueError, match="the capacity of a replica is below 1e-06"):
            ExecutorLimits(capacity)
