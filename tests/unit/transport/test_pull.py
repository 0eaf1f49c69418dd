"""Tensors between transports that share no directory, as processes of two nodes."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from cornserve.transport import LostError, TensorTooLargeError
from cornserve.transport.pull.puller import PullRequest, PullSource
from cornserve.transport.pull.tcp import TcpPuller
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

    with pytest.raises(TensorTooLargeError):
        await received(consumer, producer)


async def test_what_is_revoked_while_it_is_pulled_arrives_whole_or_is_lost_and_leaves_nothing(
    two_nodes: tuple[Process, Process],
) -> None:
    """At every moment, from before it is asked for until it has arrived."""
    producer, consumer = two_nodes
    invocation = turns = 0
    has_arrived = False
    while not has_arrived:
        production = produce(producer, invocation=invocation)
        await publish(production, data=b"1" * 2 * MIB)
        reading = asyncio.create_task(received(consumer, producer, invocation=invocation))
        await turns_of_the_loop(turns)

        has_arrived = reading.done()
        production.revoke()
        other = produce(producer, invocation=invocation + 1)
        await publish(other, data=b"2" * 2 * MIB)

        try:
            assert await reading == b"1" * 2 * MIB
            assert turns > 0
        except LostError:
            assert not has_arrived
        await until(lambda: consumer.held_bytes == 0)
        other.release()
        invocation += 2
        turns += 3 + turns // 8


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


async def test_a_listener_survives_connections_that_it_cannot_take(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    accept, failures = loop.sock_accept, [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]

    async def fail_first(listener: socket.socket) -> tuple[socket.socket, Any]:
        if failures:
            raise failures.pop()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", fail_first)
    (tmp_path / "other").mkdir()
    producer, consumer = await site.transport(), await site.transport(directory=tmp_path / "other")
    await publish(produce(producer))

    assert await received(consumer, producer) == DATA
    assert not failures


HOST = "127.0.0.1"
PIECE = PullRequest(token=bytes(16), offset=0, nbytes=len(DATA), generation=1)


@pytest.fixture
async def puller() -> AsyncIterator[TcpPuller]:
    puller = TcpPuller()
    yield puller
    await puller.close()


@pytest.mark.parametrize(
    ("export", "reason"),
    [(None, "has closed the connection"), (PullSource(memoryview(DATA), lambda: False), "was freed during the pull")],
)
async def test_a_piece_that_is_freed_before_or_while_it_is_pulled_is_lost(
    puller: TcpPuller, export: PullSource | None, reason: str
) -> None:
    address = await puller.listen(HOST, lambda _: export)

    with pytest.raises(LostError, match=reason):
        await puller.pull(HOST, address, PIECE, memoryview(bytearray(len(DATA))))


async def test_both_ends_of_a_connection_notice_that_the_other_is_gone(puller: TcpPuller) -> None:
    address = await puller.listen(HOST, lambda _: PullSource(memoryview(DATA), lambda: True))
    await puller.pull(HOST, address, PIECE, memoryview(bytearray(len(DATA))))

    ends = connections(address)

    assert len(ends) == 2
    for end in ends:
        with socket.socket(fileno=os.dup(end)) as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_a_connection_whose_producer_is_forgotten_while_it_is_used_is_closed_afterwards(
    puller: TcpPuller,
) -> None:
    def find(_: PullRequest) -> PullSource:
        puller.disconnect(HOST, address)
        return PullSource(memoryview(DATA), lambda: True)

    address = await puller.listen(HOST, find)
    into = bytearray(len(DATA))

    await puller.pull(HOST, address, PIECE, memoryview(into))

    assert into == DATA
    await until(lambda: connections(address) == [])


def connections(address: bytes) -> list[int]:
    """The descriptors of both ends of those that lead to a puller's address."""
    port = int.from_bytes(address, "little")
    return [
        connection.fd
        for connection in psutil.Process().net_connections("tcp")
        if connection.status != psutil.CONN_LISTEN and port in (connection.laddr.port, connection.raddr.port)
    ]
