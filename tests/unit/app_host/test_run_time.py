from __future__ import annotations

import os

from cornserve.app_host.activity import RunningCode
from cornserve.app_host.run_time import RunTimer, cpu_wait_seconds
from tests.loop_clock import LoopClock


async def test_time_without_a_cpu_does_not_count(clock: LoopClock) -> None:
    waited = 7.0
    timer, code = RunTimer(lambda: waited), RunningCode(1, 5)
    assert timer.seconds(code) == 0

    clock.advance(300)
    waited += 250

    assert 50 <= timer.seconds(code) < 60


async def test_each_piece_of_code_starts_at_zero(clock: LoopClock) -> None:
    timer = RunTimer(lambda: 7.0)
    timer.seconds(RunningCode(1, 5))
    clock.advance(300)

    assert timer.seconds(RunningCode(1, 6)) == 0


def test_the_time_without_a_cpu_of_a_process_that_does_not_exist_is_zero() -> None:
    assert cpu_wait_seconds(os.getpid()) >= 0
    assert cpu_wait_seconds(1 << 30) == 0
