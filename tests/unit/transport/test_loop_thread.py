"""Work in the event loop of a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from cornserve.transport.pull.loop_thread import LoopThread
from tests.waiting import until


@pytest.fixture
async def thread() -> AsyncIterator[LoopThread]:
    thread = LoopThread("test")
    yield thread
    await thread.stop()


async def test_results_and_errors_reach_the_caller(thread: LoopThread) -> None:
    async def work() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("no")

    assert await thread.run(work()) == "test"
    with pytest.raises(ValueError, match="no"):
        await thread.run(fail())


async def test_cancelled_work_has_ended_when_the_caller_continues(thread: LoopThread) -> None:
    started, may_end = asyncio.Event(), threading.Event()
    loop, has_ended = asyncio.get_running_loop(), False

    async def work() -> None:
        nonlocal has_ended
        try:
            loop.call_soon_threadsafe(started.set)
            await asyncio.Event().wait()
        finally:
            may_end.wait(60)
            has_ended = True

    running = asyncio.create_task(thread.run_to_end(work()))
    await started.wait()
    for _ in range(2):  # The second one must not end the wait.
        running.cancel()
        await asyncio.sleep(0)
    assert not running.done()

    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert has_ended


async def test_cancelled_callers_wait_for_a_blocked_thread_only_if_their_work_uses_memory(thread: LoopThread) -> None:
    may_go_on, begun = threading.Event(), []

    async def block() -> None:
        begun.append("block")
        may_go_on.wait(60)

    async def work(name: str) -> None:
        begun.append(name)

    callers = [asyncio.create_task(thread.run(block()))]
    await until(lambda: begun == ["block"])
    callers += [asyncio.create_task(run(work(run.__name__))) for run in (thread.run, thread.run_to_end)]
    await asyncio.sleep(0)
    try:
        for caller in callers:
            caller.cancel()
        ended, _ = await asyncio.wait(callers, timeout=30)
    finally:
        may_go_on.set()

    assert len(ended) == 3
    await thread.flush()
    assert begun == ["block"]


async def test_a_thread_that_has_ended_refuses_work() -> None:
    thread = LoopThread("test")
    await thread.stop()

    with pytest.raises(OSError, match="the thread test has ended"):
        await thread.run(asyncio.sleep(0))
