"""The memory of a slab follows its use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cornserve.transport import Production, SegmentReader, SlabError, StaleError, TensorId, Transport
from cornserve.transport.memory import segment
from cornserve.transport.memory.growth import RETRY_SECONDS
from cornserve.transport.memory.segment import FIRST_STEP_PAGES, PAGE, STEP_PAGES
from tests.loop_clock import LoopClock
from tests.unit.transport.conftest import MIB, REQUEST, TransportCluster, TransportProcess, slab_bytes
from tests.waiting import until

FIRST, STEP = FIRST_STEP_PAGES * PAGE, STEP_PAGES * PAGE
IDLE_SECONDS = 0.05
LARGE = 24 * MIB


class MachineMemory:
    """The memory of the machine: that of slabs that grow is limited to it."""

    def __init__(self) -> None:
        self.is_available = True

    def available_bytes(self) -> int:
        return 1 << 40 if self.is_available else 0


@pytest.fixture
async def cluster() -> AsyncIterator[TransportCluster]:
    """Returns transports whose slabs are in shared memory."""
    with TemporaryDirectory(dir="/dev/shm", prefix="cornserve-test-") as directory:
        async with AsyncExitStack() as stack:
            yield TransportCluster(Path(directory), stack)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MachineMemory:
    memory = MachineMemory()
    monkeypatch.setattr(segment, "available_memory_bytes", memory.available_bytes)
    return memory


async def start(cluster: TransportCluster, idle_seconds: float = 60, cache_bytes: int = 0) -> TransportProcess:
    return await cluster.transport(
        slab_bytes=128 * MIB, request_bytes=64 * MIB, cache_bytes=cache_bytes, idle_seconds=idle_seconds
    )


async def publish(
    process: TransportProcess, number: int, nbytes: int = LARGE, output: str = "embeddings", key: str | None = None
) -> Production:
    """Publishes a tensor of another request. A request with a lower number is older."""
    production = process.transport.produce(f"{REQUEST}-{number}", 0, 0, arrived_us=number)
    await add(production, nbytes, number, output, key)
    return production


def tensor_of(process: TransportProcess, number: int) -> TensorId:
    return TensorId(process.endpoint, f"{REQUEST}-{number}", 0, 0, "embeddings")


async def add(
    production: Production, nbytes: int = LARGE, fill: int = 0, output: str = "embeddings", key: str | None = None
) -> None:
    slot = await production.allocate(output, nbytes)
    slot.buffer[:] = bytes([fill]) * nbytes
    slot.publish("uint8", (nbytes,), key=key)


def growth_failures(transport: Transport) -> float:
    return metric(transport, "cornserve_transport_slab_growth_failures_total")


def resident_bytes(transport: Transport) -> float:
    return metric(transport, "cornserve_transport_slab_resident_bytes")


def metric(transport: Transport, name: str) -> float:
    samples = (sample for metric in transport.metrics() for sample in metric.samples)
    return next(sample.value for sample in samples if sample.name == name)


def resident(transport: Transport) -> float:
    """Returns the memory for tensors."""
    states = slab_bytes(transport)
    return sum(states.values()) - states["untaken"]


async def test_a_slab_takes_memory_when_it_is_used(cluster: TransportCluster) -> None:
    process = await start(cluster)
    assert resident(process.transport) == 0
    await process.transport.create_slab()
    assert resident(process.transport) == FIRST

    small = await publish(process, 1, FIRST)
    await until(lambda: resident(process.transport) == FIRST + STEP)  # ahead of need
    large = await publish(process, 2, 2 * STEP)
    await until(lambda: resident(process.transport) == FIRST + 3 * STEP)

    assert slab_bytes(process.transport)["held"] == FIRST + 2 * STEP
    small.release()
    large.release()


async def test_memory_is_given_back_after_a_time_without_use(cluster: TransportCluster) -> None:
    process = await start(cluster, idle_seconds=IDLE_SECONDS)
    held = await publish(process, 1)
    kept = await publish(process, 2)
    held.release()
    await until(lambda: resident(process.transport) < FIRST + 4 * STEP)
    assert slab_bytes(process.transport)["held"] == LARGE

    kept.release()
    generations = 64 * PAGE  # Steps that had memory keep that of their generations.
    await until(lambda: FIRST < resident_bytes(process.transport) < FIRST + generations)
    assert resident(process.transport) == FIRST
    await publish(process, 3)


async def test_memory_ahead_of_need_is_kept_while_its_part_of_the_slab_is_used(
    cluster: TransportCluster, clock: LoopClock
) -> None:
    process = await start(cluster)
    held = await publish(process, 0, FIRST - 5 * PAGE)
    small = [await publish(process, number, PAGE) for number in range(1, 6)]
    await until(lambda: resident(process.transport) == FIRST + STEP)

    for production in small:
        production.release()
        clock.advance(60)
        for _ in range(3):
            await asyncio.sleep(0)
    assert resident(process.transport) == FIRST + STEP

    await clock.advance_until(lambda: resident(process.transport) == FIRST, step=60)
    held.release()


async def test_memory_that_another_process_may_read_is_not_given_back(cluster: TransportCluster) -> None:
    producer = await start(cluster, idle_seconds=IDLE_SECONDS)
    consumer = await start(cluster, idle_seconds=3600)
    production = await publish(producer, 7)

    async with consumer.transport.consume(tensor_of(producer, 7)) as tensor:
        production.revoke()
        (await publish(producer, 8, 3 * STEP)).release()
        of_tensor = FIRST + 2 * STEP
        await until(lambda: resident_bytes(producer.transport) < of_tensor + MIB)
        with pytest.raises(TimeoutError):
            await until(lambda: resident_bytes(producer.transport) < of_tensor, seconds=0.2)

        with pytest.raises(StaleError):
            tensor.check()

    await consumer.transport.stop()
    del tensor
    await until(lambda: resident(producer.transport) == FIRST)


async def test_readers_let_memory_go_when_they_have_not_used_it_for_a_while(cluster: TransportCluster) -> None:
    producer = await start(cluster, idle_seconds=IDLE_SECONDS)
    consumer = await start(cluster, idle_seconds=IDLE_SECONDS)
    for number in (1, 2):
        production = await publish(producer, number)
        async with consumer.transport.consume(tensor_of(producer, number)) as tensor:
            assert tensor.view == bytes([number]) * LARGE
        production.release()

        await until(lambda: resident(producer.transport) == FIRST)


async def test_a_location_in_memory_that_was_given_back_is_stale(cluster: TransportCluster) -> None:
    process = await start(cluster, idle_seconds=IDLE_SECONDS)
    production = await publish(process, 1)
    async with process.transport.consume(tensor_of(process, 1)) as tensor:
        location = tensor.location
    production.release()
    await until(lambda: resident(process.transport) == FIRST)

    with pytest.raises(StaleError):
        SegmentReader().view(location)


async def test_a_tensor_waits_for_the_memory_of_others_when_the_machine_has_none(
    cluster: TransportCluster, memory: MachineMemory
) -> None:
    process = await start(cluster)
    oldest = await publish(process, 0, 1)
    other = await publish(process, 1)
    await until(lambda: resident(process.transport) == FIRST + 3 * STEP)
    memory.is_available = False
    waiting = asyncio.create_task(publish(process, 2, 2 * STEP))
    await until(lambda: growth_failures(process.transport) > 0)
    assert not waiting.done()

    other.release()

    (await waiting).release()
    oldest.release()


async def test_a_tensor_that_no_other_makes_space_for_is_refused_and_later_ones_have_memory_again(
    cluster: TransportCluster, memory: MachineMemory, clock: LoopClock
) -> None:
    process = await start(cluster)
    await process.transport.create_slab()
    memory.is_available = False

    with pytest.raises(SlabError, match=r"no memory for a tensor of 25165824 bytes in .*: Cannot allocate memory"):
        await publish(process, 1)
    (await publish(process, 2, MIB)).release()
    memory.is_available = True
    clock.advance(RETRY_SECONDS)

    (await publish(process, 3)).release()


async def test_the_oldest_request_does_not_wait_for_younger_ones_when_the_machine_has_no_memory(
    cluster: TransportCluster, memory: MachineMemory, clock: LoopClock
) -> None:
    """The younger ones may wait for it in another process."""
    process = await start(cluster)
    younger = await publish(process, 2, FIRST)
    await until(lambda: resident(process.transport) == FIRST + STEP)
    memory.is_available = False

    with pytest.raises(SlabError):
        await clock.advance_during(publish(process, 1), step=0.1)

    younger.release()


async def test_cached_tensors_are_evicted_when_the_machine_has_no_memory(
    cluster: TransportCluster, memory: MachineMemory
) -> None:
    process = await start(cluster, cache_bytes=64 * MIB)
    (await publish(process, 1, key="cat")).release()
    (await publish(process, 2, key="dog")).release()
    assert slab_bytes(process.transport)["cached"] == 2 * LARGE
    memory.is_available = False

    (await publish(process, 3, 2 * STEP)).release()

    assert slab_bytes(process.transport)["cached"] <= LARGE
