"""Tensors between transports that share no directory, as processes of two nodes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from cornserve.transport import LostError, TooLargeError
from tests.unit.transport.conftest import MIB, Process, Site
from tests.unit.transport.test_transport import DATA, produce, publish, received
from tests.waiting import until


@pytest.fixture
async def two_nodes(site: Site, tmp_path: Path) -> tuple[Process, Process]:
    (tmp_path / "other").mkdir()
    return await site.transport(), await site.transport(directory=tmp_path / "other")


async def test_a_tensor_is_pulled_into_the_consumers_slab_and_given_up_at_the_producer(
    two_nodes: tuple[Process, Process], tmp_path: Path
) -> None:
    producer, consumer = two_nodes
    production = produce(producer)
    await publish(production)

    async with consumer.transport.consume(producer.source()) as tensor:
        production.release()
        await until(lambda: producer.held_bytes == 0)
        assert bytes(tensor.view) == DATA
        assert (tensor.dtype, tensor.shape, tensor.metadata) == ("uint8", (64, 256), b"metadata")
        assert Path(tensor.location.path).parent == tmp_path / "other"
        assert consumer.held_bytes > 0
        tensor.check()

    assert consumer.held_bytes == 0


async def test_many_tensors_are_pulled_at_once(two_nodes: tuple[Process, Process]) -> None:
    producer, consumer = two_nodes
    production = produce(producer)
    contents = [bytes([number]) * (60_000 + number) for number in range(30)]
    reading = [asyncio.create_task(received(consumer, producer, str(number))) for number in range(30)]
    for number, data in enumerate(contents):
        await publish(production, str(number), data)

    assert await asyncio.gather(*reading) == contents
    assert consumer.held_bytes == 0


async def test_a_stream_is_pulled_chunk_by_chunk(two_nodes: tuple[Process, Process]) -> None:
    producer, consumer = two_nodes
    production = produce(producer)

    async def write() -> None:
        writer = production.stream("hidden")
        for number in range(50):
            await writer.send(bytes([number]) * MIB, "uint8", (MIB,))
        writer.close()

    writing = asyncio.create_task(write())
    async with aclosing(consumer.transport.consume_stream(producer.source("hidden"))) as stream:
        assert [chunk.view[-1] async for chunk in stream] == list(range(50))

    await writing
    assert consumer.held_bytes == 0


async def test_a_tensor_that_the_consumers_slab_cannot_hold_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    producer = await site.transport()
    consumer = await site.transport(directory=tmp_path / "other", slab_bytes=MIB, request_bytes=MIB)
    await publish(produce(producer), data=bytes(2 * MIB))

    with pytest.raises(TooLargeError):
        await received(consumer, producer)


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_what_is_revoked_while_it_is_pulled_arrives_whole_or_is_lost_and_leaves_nothing(
    two_nodes: tuple[Process, Process], turns: int
) -> None:
    producer, consumer = two_nodes
    production = produce(producer)
    await publish(production, data=b"1" * 2 * MIB)
    reading = asyncio.create_task(received(consumer, producer))
    await turns_of_the_loop(turns)

    production.revoke()
    await publish(produce(producer, invocation=1), data=b"2" * 2 * MIB)

    try:
        assert await reading == b"1" * 2 * MIB
    except LostError:
        del reading
    await until(lambda: consumer.held_bytes == 0)


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_a_cancelled_pull_leaves_nothing(two_nodes: tuple[Process, Process], turns: int) -> None:
    producer, consumer = two_nodes
    production = produce(producer)
    await publish(production, data=bytes(2 * MIB))
    reading = asyncio.create_task(received(consumer, producer))
    await turns_of_the_loop(turns)

    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    production.release()

    await until(lambda: producer.held_bytes == consumer.held_bytes == 0)


async def turns_of_the_loop(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
