from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from cornserve_executors.media.weighted_semaphore import WeightedSemaphore
from tests.waiting import until


class Visitor:
    """Stays from `enters` until `leave`."""

    def __init__(self, room: WeightedSemaphore, size: int, owner: str = "") -> None:
        self.is_in = False
        self._leave = asyncio.Event()
        self.stay = asyncio.create_task(self._visit(room, size, owner))

    async def _visit(self, room: WeightedSemaphore, size: int, owner: str) -> None:
        async with room.take(size, owner):
            self.is_in = True
            await self._leave.wait()
        self.is_in = False

    async def enters(self) -> None:
        await until(lambda: self.is_in)

    async def leave(self) -> None:
        self._leave.set()
        await self.stay


async def test_what_fits_enters_together() -> None:
    room = WeightedSemaphore(10)
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        for size in (3, 3, 4):
            await stack.enter_async_context(room.take(size, ""))


async def test_the_small_do_not_overtake_the_large() -> None:
    room = WeightedSemaphore(10)
    first, large, small = Visitor(room, 6), Visitor(room, 8), Visitor(room, 1)
    await first.enters()
    assert not large.is_in
    assert not small.is_in

    await first.leave()
    await large.enters()
    await small.enters()
    await large.leave()
    await small.leave()


async def test_who_comes_anew_enters_before_the_rest_of_those_who_have_much() -> None:
    room = WeightedSemaphore(10)
    first, second, third = (Visitor(room, 10, "much") for _ in range(3))
    await first.enters()
    other = Visitor(room, 1, "little")
    await first.leave()
    await second.enters()
    await second.leave()

    await other.enters()
    assert not third.is_in
    await other.leave()
    await third.enters()
    await third.leave()


async def test_what_is_larger_than_the_room_has_it_to_itself() -> None:
    room = WeightedSemaphore(10)
    huge, small = Visitor(room, 1000), Visitor(room, 1)
    await huge.enters()
    assert not small.is_in

    await huge.leave()
    await small.enters()
    await small.leave()


async def test_who_gives_up_waiting_is_in_nobodys_way() -> None:
    room = WeightedSemaphore(10)
    first, large, small = Visitor(room, 6), Visitor(room, 8), Visitor(room, 1)
    await first.enters()
    large.stay.cancel()

    await small.enters()
    await small.leave()
    await first.leave()


async def test_who_is_cancelled_while_entering_leaves_the_room_empty() -> None:
    room = WeightedSemaphore(10)
    first, second = Visitor(room, 10), Visitor(room, 10)
    await first.enters()
    await first.leave()  # Has let the second one in, which has not run since.
    second.stay.cancel()
    await asyncio.gather(second.stay, return_exceptions=True)

    async with asyncio.timeout(60), room.take(10, ""):
        pass
