"""Timers that expire together."""

from __future__ import annotations

import asyncio

import pytest

from cornserve.ticks import next_tick, sleep_until_tick
from tests.loop_clock import LoopClock


@pytest.mark.parametrize(("now", "tick"), [(12.3, 20), (19.9, 20), (20, 30), (20.1, 30)])
async def test_a_tick_is_a_multiple_of_the_interval(monkeypatch: pytest.MonkeyPatch, now: float, tick: float) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    assert next_tick(10) == tick


async def test_a_timer_that_expires_early_waits_for_another_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 19.9995)

    assert next_tick(10) == 30


async def test_a_sleep_ends_at_a_tick(clock: LoopClock) -> None:
    await clock.advance_during(sleep_until_tick(3600), step=60)

    assert asyncio.get_running_loop().time() % 3600 < 120
