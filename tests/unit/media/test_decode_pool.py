from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from cornserve_executors.media.decode_pool import MAX_LARGE_PIXELS, MAX_SMALL_IMAGES, DecodePools
from tests.waiting import until

SMALL = 100


@pytest.fixture
def lanes() -> Iterator[DecodePools]:
    lanes = DecodePools(SMALL)
    yield lanes
    lanes.shutdown()


async def test_small_images_do_not_wait_for_large_ones(lanes: DecodePools) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        await stack.enter_async_context(lanes.pool_for(MAX_LARGE_PIXELS).enter(MAX_LARGE_PIXELS, "large"))
        for _ in range(MAX_SMALL_IMAGES):
            await stack.enter_async_context(lanes.pool_for(SMALL).enter(SMALL, "small"))


async def test_large_images_wait_until_there_is_room_for_their_pixels(lanes: DecodePools) -> None:
    order: list[str] = []

    async def use(pixels: int, owner: str) -> None:
        async with lanes.pool_for(pixels).enter(pixels, owner) as lane:
            await lane.run(lambda: order.append(f"{owner} begins"))
            await asyncio.sleep(0)
            order.append(f"{owner} ends")

    await asyncio.gather(use(MAX_LARGE_PIXELS, "a"), use(2 * MAX_LARGE_PIXELS, "b"), use(MAX_LARGE_PIXELS, "c"))

    assert order == [f"{owner} {event}" for owner in "abc" for event in ("begins", "ends")]


async def test_who_is_cancelled_keeps_the_room_until_the_work_ends(lanes: DecodePools) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(20)

    async def use() -> None:
        async with lanes.pool_for(MAX_LARGE_PIXELS).enter(MAX_LARGE_PIXELS, "a") as lane:
            await lane.run(work)

    using = asyncio.create_task(use())
    await until(begun.is_set)
    using.cancel()
    other = asyncio.create_task(use())
    begun.clear()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not using.done()
    assert not begun.is_set()

    go_on.set()

    await other
    assert using.cancelled()


async def test_what_has_not_begun_when_it_is_cancelled_never_begins(lanes: DecodePools) -> None:
    go_on = threading.Event()
    ran: list[int] = []
    lane = lanes.pool_for(SMALL)
    blocking = [asyncio.create_task(lane.run(lambda: go_on.wait(20))) for _ in os.sched_getaffinity(0)]
    late = asyncio.create_task(lane.run(lambda: ran.append(1)))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    go_on.set()

    assert all(await asyncio.gather(*blocking))
    assert late.cancelled()
    assert not ran
