"""Who gets room when there is not enough for all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cornserve.transport.errors import TensorTooLargeError
from cornserve.transport.memory.admission import RequestAge, RequestQuota, SlabAdmission
from cornserve.transport.memory.blocks import Block
from cornserve.transport.memory.segment import PAGE, TOKEN_BYTES
from cornserve.transport.memory.slab import Slab


def age(arrived_us: int) -> RequestAge:
    return RequestAge(arrived_us, f"request-{arrived_us}")


class Request:
    """Takes what it needs, one after the other, and gives back all of it."""

    def __init__(self, admission: SlabAdmission, arrived_us: int) -> None:
        self.admission = admission
        self.quota: RequestQuota = admission.open_quota(age(arrived_us))
        self.blocks: list[Block] = []

    async def take(self, pages: int = 1) -> Block:
        block = await self.admission.allocate(self.quota, pages * PAGE)
        self.blocks.append(block)
        return block

    def end(self) -> None:
        for block in self.blocks:
            self.admission.uncharge(self.quota, block)
            self.admission.store.release(block)
        self.admission.close_quota(self.quota)


@pytest.fixture
async def admission(tmp_path: Path) -> AsyncIterator[SlabAdmission]:
    slab = Slab(tmp_path, bytes(TOKEN_BYTES), 8 * PAGE)
    yield SlabAdmission(slab, request_bytes=3 * PAGE)
    await slab.remove()


async def fill(admission: SlabAdmission) -> list[Request]:
    """The oldest of three requests has the reserve."""
    requests = [Request(admission, arrived_us) for arrived_us in range(3)]
    for number, pages in ((1, 2), (2, 3), (0, 3)):
        await requests[number].take(pages)
    return requests


def held(admission: SlabAdmission) -> int:
    return admission.common.held_pages + admission.reserve.held_pages


async def test_requests_that_hold_one_and_wait_for_more_never_block_each_other(admission: SlabAdmission) -> None:
    order = random.Random(5)

    async def run(arrived_us: int) -> None:
        request = Request(admission, arrived_us)
        for _ in range(3):
            await request.take()
            for _ in range(order.randrange(4)):
                await asyncio.sleep(0)
        request.end()

    arrivals = list(range(200))
    order.shuffle(arrivals)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for arrived_us in arrivals:
            group.create_task(run(arrived_us))

    assert held(admission) == admission.waiting == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), wants=st.lists(st.lists(st.integers(1, 3), max_size=4), max_size=20))
def test_every_request_gets_all_it_may_have_or_is_refused_at_once(
    tmp_path: Path, seed: int, wants: list[list[int]]
) -> None:
    async def main() -> None:
        order = random.Random(seed)
        slab = Slab(tmp_path, bytes(TOKEN_BYTES), 5 * PAGE)
        admission = SlabAdmission(slab, request_bytes=3 * PAGE)

        async def run(arrived_us: int, pages: list[int]) -> None:
            request = Request(admission, arrived_us)
            try:
                for number in pages:
                    await request.take(number)
                    await asyncio.sleep(0)
                    if order.random() < 0.1:
                        raise asyncio.CancelledError
            except TensorTooLargeError:
                assert sum(pages) > 3
            except asyncio.CancelledError:
                pass
            request.end()

        try:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for arrived_us, pages in zip(order.sample(range(100), len(wants)), wants, strict=True):
                    group.create_task(run(arrived_us, pages))
            assert held(admission) == 0
        finally:
            await slab.remove()

    asyncio.run(main())


async def test_the_oldest_request_goes_first(admission: SlabAdmission) -> None:
    holder = Request(admission, 0)
    await holder.take(3)
    filler = Request(admission, 1)
    await filler.take(2)  # all that is not reserved
    served: list[int] = []

    async def wait(arrived_us: int) -> None:
        request = Request(admission, arrived_us)
        await request.take(2)
        served.append(arrived_us)
        request.end()

    waiting = [asyncio.create_task(wait(arrived_us)) for arrived_us in (30, 10, 20)]
    while admission.waiting < 3:
        await asyncio.sleep(0)

    filler.end()

    await asyncio.gather(*waiting)
    assert served == [10, 20, 30]
    holder.end()


async def test_the_reserve_is_for_the_oldest_only(admission: SlabAdmission) -> None:
    oldest, filler, younger = Request(admission, 0), Request(admission, 1), Request(admission, 2)
    await filler.take(3)
    await Request(admission, 3).take(2)
    waiting = asyncio.create_task(younger.take())
    while not admission.waiting:
        await asyncio.sleep(0)

    assert (await oldest.take(3)).region is admission.reserve

    assert not waiting.done()
    filler.end()
    assert (await waiting).region is admission.common


async def test_a_waiter_that_is_cancelled_leaves_nothing(admission: SlabAdmission) -> None:
    everything = await fill(admission)
    first, second = Request(admission, 8), Request(admission, 9)
    giving_up = asyncio.create_task(first.take(3))
    patient = asyncio.create_task(second.take(2))
    while admission.waiting < 2:
        await asyncio.sleep(0)

    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    everything[1].end()

    assert (await patient).region is admission.common
    first.end()
    for request in (everything[0], everything[2], second):
        request.end()
    assert held(admission) == admission.waiting == 0


async def test_room_that_comes_at_the_moment_of_a_cancellation_is_not_lost(admission: SlabAdmission) -> None:
    everything = await fill(admission)
    late = Request(admission, 9)
    waiting = asyncio.create_task(late.take(3))
    while not admission.waiting:
        await asyncio.sleep(0)

    for request in everything:
        request.end()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)

    late.blocks.clear()
    late.end()
    assert held(admission) == admission.waiting == 0


async def test_what_can_never_fit_is_refused_at_once(admission: SlabAdmission) -> None:
    request = Request(admission, 0)
    with pytest.raises(TensorTooLargeError):
        await request.take(4)
    await request.take(2)
    with pytest.raises(TensorTooLargeError):
        await request.take(2)
    await request.take(1)
    request.end()


def test_a_reserve_that_is_larger_than_the_slab_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot hold requests"):
        SlabAdmission(Slab(tmp_path, bytes(TOKEN_BYTES), PAGE), request_bytes=2 * PAGE)
