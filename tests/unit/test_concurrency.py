"""Concurrent operations, and cancellations that libraries drop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from cornserve.concurrency import gather_all, raise_if_task_cancelled, run_unless


async def test_an_error_of_concurrent_work_leaves_no_cancellation() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ValueError, match="no"):
        await gather_all([fail(), wait()])

    raise_if_task_cancelled()


async def test_a_cancellation_that_was_dropped_is_raised() -> None:
    async def work() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        raise_if_task_cancelled()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_has_ended_after_the_event_even_if_the_caller_is_cancelled_meanwhile() -> None:
    event, may_end = asyncio.Event(), asyncio.Event()
    has_ended = False

    async def work() -> None:
        nonlocal has_ended
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            while not may_end.is_set():
                with suppress(asyncio.CancelledError):
                    await may_end.wait()
            has_ended = True
            raise

    running = asyncio.create_task(run_unless(event, work()))
    await asyncio.sleep(0)
    event.set()
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not running.done()

    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert has_ended
