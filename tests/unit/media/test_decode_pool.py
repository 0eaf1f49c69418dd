from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from cornserve_executors.media.cancellation import raise_if_cancelled
from cornserve_executors.media.decode_pool import MAX_LARGE_PIXELS, MAX_SMALL_IMAGES, DecodePools
from tests.waiting import until

SMALL = 100


@pytest.fixture
def pools() -> Iterator[DecodePools]:
    pools = DecodePools(SMALL)
    yield pools
    pools.shutdown()


async def test_small_images_do_not_wait_for_large_ones(pools: DecodePools) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        await stack.enter_async_context(pools.pool_for(MAX_LARGE_PIXELS).acquire(MAX_LARGE_PIXELS, "large"))
        for _ in range(MAX_SMALL_IMAGES):
            await stack.enter_async_context(pools.pool_for(SMALL).acquire(SMALL, "small"))


async def test_large_images_wait_until_their_pixels_are_available(pools: DecodePools) -> None:
    order: list[str] = []

    async def use(pixels: int, owner: str) -> None:
        async with pools.pool_for(pixels).acquire(pixels, owner) as pool:
            await pool.run(lambda: order.append(f"{owner} begins"))
            await asyncio.sleep(0)
            order.append(f"{owner} ends")

    await asyncio.gather(use(MAX_LARGE_PIXELS, "a"), use(2 * MAX_LARGE_PIXELS, "b"), use(MAX_LARGE_PIXELS, "c"))

    assert order == [f"{owner} {event}" for owner in "abc" for event in ("begins", "ends")]


async def test_a_cancelled_user_holds_its_pixels_until_its_work_ends(pools: DecodePools) -> None:
    started, proceed = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        assert proceed.wait(20)

    async def use() -> None:
        async with pools.pool_for(MAX_LARGE_PIXELS).acquire(MAX_LARGE_PIXELS, "a") as pool:
            await pool.run(work)

    cancelled = asyncio.create_task(use())
    await until(started.is_set)
    cancelled.cancel()
    other = asyncio.create_task(use())
    started.clear()
    await asyncio.sleep(0)
    cancelled.cancel()  # A second cancellation has no effect.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not cancelled.done()
    assert not started.is_set()

    proceed.set()

    await other
    assert cancelled.cancelled()


async def test_cancelled_work_ends_when_it_checks_for_that(pools: DecodePools) -> None:
    started = threading.Event()

    def work() -> None:
        while True:
            started.set()
            raise_if_cancelled()

    cancelled = asyncio.create_task(pools.pool_for(SMALL).run(work))
    await until(started.is_set)
    cancelled.cancel()

    await asyncio.wait({cancelled}, timeout=20)
    assert cancelled.cancelled()


async def test_work_that_is_cancelled_before_it_starts_never_runs(pools: DecodePools) -> None:
    proceed = threading.Event()
    ran: list[int] = []
    pool = pools.pool_for(SMALL)
    blocking = [asyncio.create_task(pool.run(lambda: proceed.wait(20))) for _ in os.sched_getaffinity(0)]
    queued = asyncio.create_task(pool.run(lambda: ran.append(1)))
    await asyncio.sleep(0)
    queued.cancel()
    await asyncio.gather(queued, return_exceptions=True)
    proceed.set()

    assert all(await asyncio.gather(*blocking))
    assert queued.cancelled()
    assert not ran
