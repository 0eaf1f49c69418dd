from __future__ import annotations

import asyncio
import threading

import pytest

from cornserve_executors.media.cancellation import raise_if_cancelled, run_in_thread


async def test_work_in_a_thread_ends_when_its_caller_is_cancelled() -> None:
    started, ended = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        try:
            while True:
                raise_if_cancelled()
        finally:
            ended.set()

    caller = asyncio.create_task(run_in_thread(work))
    assert await asyncio.to_thread(started.wait, 20)
    caller.cancel()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await asyncio.to_thread(ended.wait, 20)


async def test_work_in_a_thread_returns_its_result_or_raises_its_error() -> None:
    def fail() -> None:
        raise ValueError("the file is empty")

    assert await run_in_thread(lambda: 3) == 3
    with pytest.raises(ValueError, match="the file is empty"):
        await run_in_thread(fail)
