"""The memory of the tensors for one of several consumers."""

from __future__ import annotations

import asyncio

import pytest

from cornserve.transport import Production
from tests.unit.transport.conftest import MIB, TransportCluster, TransportProcess

COMMON = 6 * MIB
"""The slab of the tests outside of the reserve."""

CONSUMERS = 3


@pytest.fixture
async def process(cluster: TransportCluster) -> TransportProcess:
    return await cluster.transport(slab_bytes=12 * MIB, request_bytes=12 * MIB - COMMON)


@pytest.fixture
async def oldest(process: TransportProcess) -> Production:
    """A production of the oldest request, which alone may use the reserve."""
    return process.transport.produce("oldest", 0, 0, arrived_us=0)


def produce(process: TransportProcess, number: int, consumer: str = "hung", consumers: int = CONSUMERS) -> Production:
    production = process.transport.produce(f"request-{number}", 0, 0, arrived_us=number)
    production.bind_consumer(consumer, consumers)
    return production


async def waits(allocation: asyncio.Task[object]) -> bool:
    """Returns whether an allocation is not done when the event loop has run everything else."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not allocation.done()


async def test_a_tensor_waits_for_the_share_of_its_consumer_and_blocks_no_other(
    process: TransportProcess, oldest: Production
) -> None:
    first = produce(process, 1)
    await first.allocate("kv", COMMON // CONSUMERS)
    second = asyncio.create_task(produce(process, 2).allocate("kv", MIB))
    assert await waits(second)

    await produce(process, 3, "other").allocate("kv", MIB)
    assert await waits(second)

    first.release()
    await second


async def test_a_production_that_has_a_tensor_may_allocate_the_next(
    process: TransportProcess, oldest: Production
) -> None:
    production = produce(process, 1)
    await production.allocate("kv", COMMON // CONSUMERS)

    await production.allocate("first", MIB)


async def test_a_tensor_larger_than_the_share_uses_half_of_the_memory_alone(
    process: TransportProcess, oldest: Production
) -> None:
    large = produce(process, 1)
    await large.allocate("kv", COMMON // 2)
    second = asyncio.create_task(produce(process, 2).allocate("kv", MIB))
    larger = asyncio.create_task(produce(process, 3, "other").allocate("kv", COMMON // 2 + MIB))
    assert await waits(second)
    assert await waits(larger)

    large.release()
    await second
    oldest.release()
    larger.cancel()


async def test_another_consumer_takes_the_tensors_over(process: TransportProcess, oldest: Production) -> None:
    production = produce(process, 1)
    await production.allocate("kv", COMMON // CONSUMERS)
    second = asyncio.create_task(produce(process, 2).allocate("kv", MIB))
    assert await waits(second)

    production.bind_consumer("replacement", CONSUMERS)

    await second


async def test_the_oldest_request_gets_the_reserve_beyond_the_share(
    process: TransportProcess, oldest: Production
) -> None:
    await produce(process, 1).allocate("kv", COMMON // CONSUMERS)
    oldest.bind_consumer("hung", CONSUMERS)

    await oldest.allocate("kv", 2 * MIB)


async def test_a_discarded_tensor_frees_the_share(process: TransportProcess, oldest: Production) -> None:
    slot = await produce(process, 1).allocate("kv", COMMON // CONSUMERS)
    second = asyncio.create_task(produce(process, 2).allocate("kv", MIB))
    assert await waits(second)

    slot.discard()

    await second
