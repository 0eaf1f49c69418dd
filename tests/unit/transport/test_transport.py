"""Transfers between transports that share a directory, as on one node."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from cornserve.transport import (
    LostError,
    Production,
    SegmentReader,
    SegmentWriter,
    Slot,
    StaleError,
    TensorId,
    TensorTooLargeError,
    Transport,
)
from cornserve.transport.memory.segment import PAGE
from cornserve.transport.memory.step_registrations import address_of
from tests.loop_clock import LoopClock
from tests.unit.transport.conftest import MIB, REQUEST, TransportCluster, TransportProcess
from tests.waiting import until

DATA = bytes(range(256)) * 64


def produce(process: TransportProcess, *, invocation: int = 0, attempt: int = 0, arrived_us: int = 1) -> Production:
    return process.transport.produce(REQUEST, invocation, attempt, arrived_us=arrived_us)


async def publish(
    production: Production, output: str = "embeddings", data: bytes = DATA, key: str | None = None
) -> None:
    slot = await production.allocate(output, len(data))
    slot.buffer[:] = data
    slot.publish("uint8", (64, 256) if data is DATA else (len(data),), b"metadata", key)


async def received(
    consumer: TransportProcess, producer: TransportProcess, output: str = "embeddings", **attempt: int
) -> bytes:
    async with consumer.transport.consume(producer.tensor_id(output, **attempt)) as tensor:
        return bytes(tensor.view)


async def test_a_consumer_reads_a_tensor_without_a_copy(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    await publish(produce(producer))

    async with consumer.transport.consume(producer.tensor_id()) as tensor:
        assert bytes(tensor.view) == DATA
        assert tensor.view.readonly
        assert (tensor.dtype, tensor.shape, tensor.metadata) == ("uint8", (64, 256), b"metadata")
        assert (await asyncio.to_thread(Path(tensor.location.path).read_bytes))[tensor.location.offset :].startswith(
            DATA
        )
        tensor.check()


@pytest.mark.parametrize("when", ["before it is published", "before its producer has started"])
async def test_a_consumer_may_subscribe_before_the_tensor_exists(cluster: TransportCluster, when: str) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    production = produce(producer) if when == "before it is published" else None
    reading = asyncio.create_task(received(consumer, producer))
    await wait_for_subscriptions(producer, consumer)

    await publish(production or produce(producer))

    assert await reading == DATA


async def wait_for_subscriptions(producer: TransportProcess, consumer: TransportProcess) -> None:
    """Waits for the response to a later subscription on the same connection."""
    produce(producer, invocation=99).release()
    with pytest.raises(LostError):
        await received(consumer, producer, invocation=99)


async def test_several_consumers_read_the_same_tensor_and_the_last_one_frees_it(cluster: TransportCluster) -> None:
    producer, first, second = await cluster.transport(), await cluster.transport(), await cluster.transport()
    production = produce(producer)
    await publish(production)

    async with first.transport.consume(producer.tensor_id()) as first_view:
        async with second.transport.consume(producer.tensor_id()) as second_view:
            production.release()
            assert first_view.location == second_view.location
        assert producer.held_bytes > 0
        first_view.check()

    await until(lambda: producer.held_bytes == 0)


async def test_consumers_in_the_producers_process_read_its_memory(cluster: TransportCluster) -> None:
    process = await cluster.transport()
    production = produce(process)
    slot = await production.allocate("embeddings", len(DATA))
    slot.buffer[:] = DATA
    address = address_of(slot.buffer)
    slot.publish("uint8", (64, 256))
    assert await received(process, process) == DATA

    async with process.transport.consume(process.tensor_id()) as tensor:
        assert address_of(tensor.view) == address
        assert bytes(tensor.view) == DATA
        production.revoke()
        with pytest.raises(StaleError):
            tensor.check()
    with pytest.raises(LostError, match="ended"):
        await received(process, process)


async def test_a_released_tensor_is_freed_and_lost_for_later_consumers(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    production = produce(producer)
    await publish(production)
    waiting = asyncio.create_task(received(consumer, producer, "never"))
    assert await received(consumer, producer) == DATA

    production.release()

    await until(lambda: producer.held_bytes == 0)
    with pytest.raises(LostError, match="has ended without it"):
        await waiting
    with pytest.raises(LostError, match="its producer has ended"):
        await received(consumer, producer)


async def test_a_revoked_tensor_is_stale_for_its_readers(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    production = produce(producer)
    await publish(production)
    reader = SegmentReader()

    async with consumer.transport.consume(producer.tensor_id()) as tensor:
        assert bytes(reader.view(tensor.location)) == DATA
        production.revoke()
        assert producer.held_bytes == 0
        with pytest.raises(StaleError):
            tensor.check()
        with pytest.raises(StaleError):
            reader.check(tensor.location)
        with pytest.raises(StaleError):
            reader.view(tensor.location)


async def test_an_older_attempt_is_lost_when_a_later_one_starts(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    old = asyncio.create_task(received(consumer, producer, attempt=0))
    new = asyncio.create_task(received(consumer, producer, attempt=1))
    await wait_for_subscriptions(producer, consumer)

    await publish(produce(producer, attempt=1))

    assert await new == DATA
    with pytest.raises(LostError, match="later attempt"):
        await old


@pytest.mark.parametrize("ending", [None, Production.release])
@pytest.mark.parametrize("by", ["another process", "the producer's own process"])
async def test_an_older_attempt_is_lost_for_consumers_that_subscribe_after_a_later_one_has_started(
    cluster: TransportCluster, by: str, ending: Callable[[Production], None] | None
) -> None:
    producer, other = await cluster.transport(), await cluster.transport()
    consumer = other if by == "another process" else producer
    later = produce(producer, attempt=2)
    await publish(later)
    if ending is not None:
        ending(later)

    for attempt in (0, 1):
        with pytest.raises(LostError, match="later attempt"):
            await received(consumer, producer, attempt=attempt)

    if ending is None:
        assert await received(consumer, producer, attempt=2) == DATA


async def test_an_attempt_of_another_invocation_is_not_superseded(cluster: TransportCluster) -> None:
    producer = await cluster.transport()
    produce(producer, attempt=1)
    reading = asyncio.create_task(received(producer, producer, invocation=1))

    await publish(produce(producer, invocation=1))

    assert await reading == DATA


async def test_tensors_of_a_producer_that_has_ended_are_lost_at_once(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    waiting = asyncio.create_task(received(consumer, producer))
    await wait_for_subscriptions(producer, consumer)

    await producer.transport.stop()

    with pytest.raises(LostError, match="connection"):
        await waiting
    with pytest.raises(LostError, match="connection"):
        await received(consumer, producer)


async def test_tensors_of_a_producer_that_hangs_are_lost(cluster: TransportCluster, clock: LoopClock) -> None:
    """The system of a process that hangs keeps its connections open."""
    consumer = await cluster.transport()
    endpoint = await cluster.mute_endpoint()

    async def consume() -> None:
        async with consumer.transport.consume(TensorId(endpoint, REQUEST, 0, 0, "embeddings")):
            raise AssertionError("a tensor was received")

    with pytest.raises(LostError, match="hangs"):
        await clock.advance_during(consume(), step=1)


async def test_a_process_that_has_stopped_its_transport_refuses_connections(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()

    await producer.transport.stop()

    with pytest.raises(LostError, match="connection"):
        await received(consumer, producer)


async def test_a_cancelled_consumer_releases_its_tensors(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    production = produce(producer)
    await publish(production)
    holding = asyncio.Event()

    async def hold() -> None:
        async with consumer.transport.consume(producer.tensor_id()):
            holding.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await holding.wait()
    production.release()
    assert producer.held_bytes > 0

    task.cancel()

    await until(lambda: producer.held_bytes == 0)


async def test_a_tensor_is_reused_by_the_key_of_its_content(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(cache_bytes=MIB), await cluster.transport()
    first = produce(producer)
    assert not first.reuse("embeddings", "cat")
    await publish(first, key="cat")
    first.release()
    assert producer.held_bytes == 0

    second = produce(producer, invocation=1)
    assert second.reuse("embeddings", "cat")

    assert await received(consumer, producer, invocation=1) == DATA
    second.revoke()
    assert produce(producer, invocation=2).reuse("embeddings", "cat")


async def test_a_stream_arrives_in_order_and_slows_its_producer_down(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(slab_bytes=MIB, request_bytes=MIB), await cluster.transport()
    production = produce(producer)
    chunks = [bytes([number]) * (256 << 10) for number in range(40)]

    async def write() -> None:
        writer = production.stream("hidden")
        for chunk in chunks:
            await writer.send(chunk, "uint8", (len(chunk),))
        writer.close()

    writing = asyncio.create_task(write())
    await until(lambda: producer.held_bytes == MIB)
    assert not writing.done()

    async with aclosing(consumer.transport.consume_stream(producer.tensor_id("hidden"))) as stream:
        received_chunks = [bytes(chunk.view) async for chunk in stream]

    assert received_chunks == chunks
    await writing
    production.release()
    await until(lambda: producer.held_bytes == 0)


async def test_a_stream_can_be_read_again_until_its_space_is_needed(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(slab_bytes=MIB, request_bytes=MIB), await cluster.transport()
    production = produce(producer)
    writer = production.stream("hidden")
    for number in range(3):
        await writer.send(bytes([number]) * 100, "uint8", (100,))
    writer.close()

    async def read() -> list[int]:
        async with aclosing(consumer.transport.consume_stream(producer.tensor_id("hidden"))) as stream:
            return [chunk.view[0] async for chunk in stream]

    assert await read() == await read() == [0, 1, 2]
    await until(lambda: producer.held_bytes == 0)
    await publish(production, data=bytes(MIB))
    with pytest.raises(LostError, match="have been evicted"):
        await read()


async def test_a_stream_waits_for_its_consumer_at_its_window(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    production = produce(producer)
    writer = production.stream("hidden", window=3)
    sent = 0

    async def write() -> None:
        nonlocal sent
        while True:
            await writer.send(bytes([sent]), "uint8", (1,))
            sent += 1

    writing = asyncio.create_task(write())
    async with aclosing(consumer.transport.consume_stream(producer.tensor_id("hidden"))) as stream:
        for read in range(10):
            assert (await anext(stream)).view[0] == read
            await until(lambda expected=read + 3: sent == expected)  # type: ignore[misc]
        assert producer.held_bytes == 3 * PAGE

    production.revoke()

    with pytest.raises(LostError):
        await writing
    await until(lambda: producer.held_bytes == 0)


async def test_the_chunks_of_a_stream_may_have_different_shapes_and_there_may_be_none(
    cluster: TransportCluster,
) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    production = produce(producer)
    empty, mixed = production.stream("empty"), production.stream("mixed")
    tensors: list[tuple[str, tuple[int, ...]]] = [("float32", (2, 3)), ("int64", (1,)), ("uint8", (24,))]
    for dtype, shape in tensors:
        await mixed.send(bytes(8 if dtype == "int64" else 24), dtype, shape)
    with pytest.raises(ValueError, match="has 16 bytes"):
        await mixed.send(bytes(8), "float32", (4,))
    for writer in (empty, mixed):
        writer.close()

    async def read(output: str) -> list[tuple[str, tuple[int, ...]]]:
        async with aclosing(consumer.transport.consume_stream(producer.tensor_id(output))) as stream:
            return [(chunk.dtype, chunk.shape) async for chunk in stream]

    assert (await read("empty"), await read("mixed")) == ([], tensors)


async def test_a_discarded_stream_is_lost_and_does_not_block_its_writer(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    production = produce(producer)
    writer = production.stream("hidden", window=1)
    stream = consumer.transport.consume_stream(producer.tensor_id("hidden"))
    await writer.send(b"1", "uint8", (1,))
    assert bytes((await anext(stream)).view) == b"1"
    writing = asyncio.create_task(writer.send(b"2", "uint8", (1,)))
    await asyncio.sleep(0)
    assert not writing.done()

    writer.discard()

    assert production.unpublished(["hidden"]) == []
    await writing
    await writer.send(b"3", "uint8", (1,))
    for late in (stream, consumer.transport.consume_stream(producer.tensor_id("hidden"))):
        with pytest.raises(LostError, match="discarded"):
            await anext(late)
    await until(lambda: producer.held_bytes == 0)


async def test_a_stream_is_lost_in_the_middle_when_its_producer_ends(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    production = produce(producer)
    await production.stream("hidden").send(b"1", "uint8", (1,))
    stream = consumer.transport.consume_stream(producer.tensor_id("hidden"))
    assert bytes((await anext(stream)).view) == b"1"

    production.release()

    with pytest.raises(LostError, match="its producer has ended without it"):
        await anext(stream)


async def test_a_tensor_that_can_never_fit_is_refused_at_once(cluster: TransportCluster) -> None:
    producer = await cluster.transport(slab_bytes=4 * MIB, request_bytes=MIB)
    production = produce(producer)
    await production.allocate("first", MIB // 2)

    with pytest.raises(TensorTooLargeError, match=r"needs 1\.5 MiB .* may have 1\.0 MiB"):
        await production.allocate("second", MIB)


async def test_a_discarded_slot_goes_to_a_waiting_request_and_is_not_charged(cluster: TransportCluster) -> None:
    producer = await cluster.transport(slab_bytes=2 * MIB, request_bytes=MIB)  # A younger request may use 1 MiB.
    production = produce(producer)
    slot = await production.allocate("embeddings", MIB)
    waiting = asyncio.create_task(_allocate(producer.transport.produce("request-2", 0, 0, arrived_us=2)))
    await asyncio.sleep(0)
    assert not waiting.done()

    slot.discard()
    slot.discard()

    (await waiting).discard()
    assert producer.held_bytes == 0
    with pytest.raises(LostError, match="discarded"):
        assert slot.buffer
    await publish(production, data=bytes(MIB))


async def test_a_slot_for_a_chunk_can_be_discarded(cluster: TransportCluster) -> None:
    producer = await cluster.transport(slab_bytes=MIB, request_bytes=MIB)
    production = produce(producer)
    slot = await production.stream("hidden").allocate(MIB)

    slot.discard()

    assert producer.held_bytes == 0
    production.release()


async def test_memory_with_a_writable_buffer_is_not_reused(cluster: TransportCluster) -> None:
    producer = await cluster.transport(slab_bytes=MIB, request_bytes=MIB)
    production = produce(producer)
    copying = memoryview((await production.allocate("embeddings", MIB)).buffer)[10:]

    production.revoke()
    waiting = asyncio.create_task(_allocate(produce(producer, invocation=1)))
    copying[:] = b"x" * len(copying)
    await asyncio.sleep(0)
    assert not waiting.done()

    del copying
    slot = await waiting
    assert len(slot.buffer) == MIB


async def _allocate(production: Production, nbytes: int = MIB) -> Slot:
    return await production.allocate("embeddings", nbytes)


async def test_metrics_count_receptions_losses_and_cache_lookups(cluster: TransportCluster) -> None:
    process, consumer = await cluster.transport(cache_bytes=MIB), await cluster.transport()
    production = produce(process)
    assert not production.reuse("embeddings", "cat")
    await publish(production, key="cat")
    await received(process, process)
    await received(consumer, process)
    production.release()
    with pytest.raises(LostError):
        await received(consumer, process)
    assert produce(process, invocation=1).reuse("embeddings", "cat")

    produced, consumed = metrics(process.transport), metrics(consumer.transport)

    assert produced["cornserve_transport_received_bytes_total", "same_process"] == len(DATA)
    assert consumed["cornserve_transport_received_bytes_total", "same_node"] == len(DATA)
    assert consumed["cornserve_transport_hop_seconds_count", "same_node"] == 1
    assert consumed["cornserve_transport_lost_tensors_total", ""] == 1
    assert (
        produced["cornserve_transport_cache_lookups_total", "hit"]
        == produced["cornserve_transport_cache_lookups_total", "miss"]
        == 1
    )


def metrics(transport: Transport) -> dict[tuple[str, str], float]:
    samples = (sample for metric in transport.metrics() for sample in metric.samples)
    return {(sample.name, next(iter(sample.labels.values()), "")): sample.value for sample in samples}


async def test_another_process_writes_to_lent_memory(cluster: TransportCluster) -> None:
    producer, consumer = await cluster.transport(), await cluster.transport()
    slot = await produce(producer).allocate("embeddings", len(DATA))

    SegmentWriter().buffer(slot.location)[:] = DATA
    slot.publish("uint8", (len(DATA),))

    assert await received(consumer, producer) == DATA


async def test_lent_memory_is_not_reused_while_its_buffer_exists(cluster: TransportCluster) -> None:
    producer, writer = await cluster.transport(slab_bytes=MIB, request_bytes=MIB), SegmentWriter()
    production = produce(producer)
    slot = await production.allocate("embeddings", MIB)
    lent, location = slot.buffer, slot.location
    written = writer.buffer(location)
    production.revoke()
    second = asyncio.create_task(produce(producer, attempt=1).allocate("embeddings", MIB))
    await asyncio.sleep(0)

    written[:4] = b"late"
    with pytest.raises(StaleError):
        writer.buffer(location)
    assert not second.done()
    del slot, production
    gc.collect()
    del lent

    (await second).discard()
