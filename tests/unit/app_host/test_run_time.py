from __future__ import annotations

import os

import pytest

from cornserve.app_host.activity import RunningCode
from cornserve.app_host.run_time import RunTimer, cpu_wait_seconds


class Times:
    """A clock and the time without a CPU, which tests set."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waited = 7.0


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def timer(times: Times) -> RunTimer:
    return RunTimer(lambda: times.waited, lambda: times.now)


def test_time_without_a_cpu_does_not_count(times: Times, timer: RunTimer) -> None:
    code = RunningCode(1, 5)
    assert timer.seconds(code) == 0

    times.now += 3
    times.waited += 2.5

    assert timer.seconds(code) == 0.5


def test_each_piece_of_code_starts_at_zero(times: Times, timer: RunTimer) -> None:
    timer.seconds(RunningCode(1, 5))
    times.now += 3

    assert timer.seconds(RunningCode(1, 6)) == 0


def test_the_time_without_a_cpu_of_a_process_that_does_not_exist_is_zero() -> None:
    assert cpu_wait_seconds(os.getpid()) >= 0
    assert cpu_wait_seconds(1 << 30) == 0
