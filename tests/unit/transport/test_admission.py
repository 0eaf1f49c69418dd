"""The order in which requests receive space in a full slab."""

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
from cornserve.transport.memory.refcounted_blocks import Block
from cornserve.transport.memory.segment import PAGE, TOKEN_BYTES
from cornserve.transport.memory.slab import Slab


def age(arrived_us: int) -> RequestAge:
    return RequestAge(arrived_us, f"request-{arrived_us}")


class SlabRequest:
    """Allocates blocks one after another, and frees all of them at the end."""

    def __init__(self, admission: SlabAdmission, arrived_us: int) -> None:
        self.admission = admission
        self.quota: RequestQuota = admission.open_quota(age(arrived_us))
        self.blocks: list[Block] = []

    async def allocate(self, pages: int = 1) -> Block:
        block = await self.admission.allocate(self.quota, pages * PAGE)
        self.blocks.append(block)
        return block

    def finish(self) -> None:
        for block in self.blocks:
            self.admission.uncharge(self.quota, block)
            self.admission.blocks.release(block)
        self.admission.close_quota(self.quota)


@pytest.fixture
async def admission(tmp_path: Path) -> AsyncIterator[SlabAdmission]:
    slab = Slab(tmp_path, bytes(TOKEN_BYTES), 8 * PAGE)
    yield SlabAdmission(slab, request_bytes=3 * PAGE)
    await slab.remove()


async def fill(admission: SlabAdmission) -> list[SlabRequest]:
    """Fills the slab with three requests. The oldest request holds the reserve."""
    requests = [SlabRequest(admission, arrived_us) for arrived_us in range(3)]
    for number, pages in ((1, 2), (2, 3), (0, 3)):
        await requests[number].allocate(pages)
    return requests


def held_pages(admission: SlabAdmission) -> int:
    return admission.common.held_pages + admission.reserve.held_pages


async def test_memory_that_is_sent_is_not_reused_until_it_has_been_sent(admission: SlabAdmission) -> None:
    request = SlabRequest(admission, arrived_us=0)
    block = await request.allocate(2)
    end_first, end_second = admission.blocks.hold_memory(block), admission.blocks.hold_memory(block)

    request.finish()
    end_first()

    assert admission.blocks.find(block.capability) is None
    assert held_pages(admission) == 2
    end_second()
    assert held_pages(admission) == 0


async def test_requests_that_hold_a_block_and_wait_for_another_never_deadlock(admission: SlabAdmission) -> None:
    order = random.Random(5)

    async def run(arrived_us: int) -> None:
        request = SlabRequest(admission, arrived_us)
        for _ in range(3):
            await request.allocate()
            for _ in range(order.randrange(4)):
                await asyncio.sleep(0)
        request.finish()

    arrivals = list(range(200))
    order.shuffle(arrivals)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for arrived_us in arrivals:
            group.create_task(run(arrived_us))

    assert held_pages(admission) == admission.waiting == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), wants=st.lists(st.lists(st.integers(1, 3), max_size=4), max_size=20))
def test_every_request_gets_its_quota_or_is_refused_at_once(tmp_path: Path, seed: int, wants: list[list[int]]) -> None:
    async def main() -> None:
        order = random.Random(seed)
        slab = Slab(tmp_path, bytes(TOKEN_BYTES), 5 * PAGE)
        admission = SlabAdmission(slab, request_bytes=3 * PAGE)

        async def run(arrived_us: int, pages: list[int]) -> None:
            request = SlabRequest(admission, arrived_us)
            try:
                for number in pages:
                    await request.allocate(number)
                    await asyncio.sleep(0)
                    if order.random() < 0.1:
                        raise asyncio.CancelledError
            except TensorTooLargeError:
                assert sum(pages) > 3
            except asyncio.CancelledError:
                pass
            request.finish()

        try:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for arrived_us, pages in zip(order.sample(range(100), len(wants)), wants, strict=True):
                    group.create_task(run(arrived_us, pages))
            assert held_pages(admission) == 0
        finally:
            await slab.remove()

    asyncio.run(main())


async def test_the_oldest_request_goes_first(admission: SlabAdmission) -> None:
    holder = SlabRequest(admission, 0)
    await holder.allocate(3)
    filler = SlabRequest(admission, 1)
    await filler.allocate(2)  # everything outside the reserve
    served: list[int] = []

    async def wait(arrived_us: int) -> None:
        request = SlabRequest(admission, arrived_us)
        await request.allocate(2)
        served.append(arrived_us)
        request.finish()

    waiting = [asyncio.create_task(wait(arrived_us)) for arrived_us in (30, 10, 20)]
    while admission.waiting < 3:
        await asyncio.sleep(0)

    filler.finish()

    await asyncio.gather(*waiting)
    assert served == [10, 20, 30]
    holder.finish()


async def test_only_the_oldest_request_allocates_in_the_reserve(admission: SlabAdmission) -> None:
    oldest, filler, younger = SlabRequest(admission, 0), SlabRequest(admission, 1), SlabRequest(admission, 2)
    await filler.allocate(3)
    await SlabRequest(admission, 3).allocate(2)
    waiting = asyncio.create_task(younger.allocate())
    while not admission.waiting:
        await asyncio.sleep(0)

    assert (await oldest.allocate(3)).region is admission.reserve

    assert not waiting.done()
    filler.finish()
    assert (await waiting).region is admission.common


async def test_a_cancelled_waiter_leaks_no_memory(admission: SlabAdmission) -> None:
    requests = await fill(admission)
    first, second = SlabRequest(admission, 8), SlabRequest(admission, 9)
    cancelled = asyncio.create_task(first.allocate(3))
    remaining = asyncio.create_task(second.allocate(2))
    while admission.waiting < 2:
        await asyncio.sleep(0)

    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    requests[1].finish()

    assert (await remaining).region is admission.common
    first.finish()
    for request in (requests[0], requests[2], second):
        request.finish()
    assert held_pages(admission) == admission.waiting == 0


async def test_a_block_that_is_allocated_at_the_moment_of_a_cancellation_is_freed(admission: SlabAdmission) -> None:
    requests = await fill(admission)
    late = SlabRequest(admission, 9)
    waiting = asyncio.create_task(late.allocate(3))
    while not admission.waiting:
        await asyncio.sleep(0)

    for request in requests:
        request.finish()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0)

    late.blocks.clear()
    late.finish()
    assert held_pages(admission) == admission.waiting == 0


async def test_a_block_that_can_never_fit_is_refused_at_once(admission: SlabAdmission) -> None:
    request = SlabRequest(admission, 0)
    with pytest.raises(TensorTooLargeError):
        await request.allocate(4)
    await request.allocate(2)
    with pytest.raises(TensorTooLargeError):
        await request.allocate(2)
    await request.allocate(1)
    request.finish()


def test_a_reserve_that_is_larger_than_the_slab_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot hold requests"):
        SlabAdmission(Slab(tmp_path, bytes(TOKEN_BYTES), PAGE), request_bytes=2 * PAGE)
