from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from cornserve.weighted_semaphore import WeightedSemaphore
from tests.waiting import until


class Holder:
    """Acquires a weight in a task, and holds it from `acquired` until `release`."""

    def __init__(self, semaphore: WeightedSemaphore, weight: int, owner: str = "") -> None:
        self.holds = False
        self._release = asyncio.Event()
        self.task = asyncio.create_task(self._hold(semaphore, weight, owner))

    async def _hold(self, semaphore: WeightedSemaphore, weight: int, owner: str) -> None:
        async with semaphore.acquire(weight, owner):
            self.holds = True
            await self._release.wait()
        self.holds = False

    async def acquired(self) -> None:
        await until(lambda: self.holds)

    async def release(self) -> None:
        self._release.set()
        await self.task


async def test_weights_that_fit_are_held_together() -> None:
    semaphore = WeightedSemaphore(10)
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        for weight in (3, 3, 4):
            await stack.enter_async_context(semaphore.acquire(weight, ""))


async def test_a_reservation_is_released_once() -> None:
    semaphore = WeightedSemaphore(10)
    async with asyncio.timeout(60):
        first, second = await semaphore.reserve(5, ""), await semaphore.reserve(5, "")
        waiting = asyncio.create_task(semaphore.reserve(6, ""))
        first.release()
        first.release()
        await asyncio.sleep(0)
        assert not waiting.done()
        second.release()
        with await waiting:
            pass
        (await semaphore.reserve(10, "")).release()


async def test_a_light_waiter_does_not_overtake_a_heavy_one() -> None:
    semaphore = WeightedSemaphore(10)
    first, heavy, light = Holder(semaphore, 6), Holder(semaphore, 8), Holder(semaphore, 1)
    await first.acquired()
    assert not heavy.holds
    assert not light.holds

    await first.release()
    await heavy.acquired()
    await light.acquired()
    await heavy.release()
    await light.release()


async def test_a_new_owner_is_admitted_before_the_remaining_waiters_of_another() -> None:
    semaphore = WeightedSemaphore(10)
    first, second, third = (Holder(semaphore, 10, "many") for _ in range(3))
    await first.acquired()
    other = Holder(semaphore, 1, "few")
    await first.release()
    await second.acquired()
    await second.release()

    await other.acquired()
    assert not third.holds
    await other.release()
    await third.acquired()
    await third.release()


async def test_a_weight_above_the_capacity_is_held_alone() -> None:
    semaphore = WeightedSemaphore(10)
    huge, light = Holder(semaphore, 1000), Holder(semaphore, 1)
    await huge.acquired()
    assert not light.holds

    await huge.release()
    await light.acquired()
    await light.release()


async def test_a_cancelled_waiter_does_not_block_the_next() -> None:
    semaphore = WeightedSemaphore(10)
    first, heavy, light = Holder(semaphore, 6), Holder(semaphore, 8), Holder(semaphore, 1)
    await first.acquired()
    heavy.task.cancel()

    await light.acquired()
    await light.release()
    await first.release()


async def test_a_waiter_that_is_cancelled_as_it_is_admitted_releases_its_weight() -> None:
    semaphore = WeightedSemaphore(10)
    first, second = Holder(semaphore, 10), Holder(semaphore, 10)
    await first.acquired()
    await first.release()  # Admits the second holder, which has not run since.
    second.task.cancel()
    await asyncio.gather(second.task, return_exceptions=True)

    async with asyncio.timeout(60), semaphore.acquire(10, ""):
        pass
