"""Concurrent operations, and cancellations that libraries drop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from cornserve.concurrency import gather_all, raise_if_task_cancelled


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
