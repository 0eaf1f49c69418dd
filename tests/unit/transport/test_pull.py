"""Transfers between transports without a common directory, as on two nodes."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from cornserve.transport import LostError, Production, TensorTooLargeError
from cornserve.transport.pull.puller import PullSource
from cornserve.transport.pull.tcp import PREAMBLE, TcpPuller
from cornserve.wire import handshake, sockets
from cornserve.wire.listener import ConnectionListener
from tests.credentials import CREDENTIALS
from tests.pull_sources import pull_source, pull_target
from tests.unit.transport.conftest import MIB, TransportCluster, TransportProcess, by_each_protocol
from tests.unit.transport.test_transport import DATA, produce, publish, received
from tests.waiting import until


@by_each_protocol
async def test_a_pulled_tensor_is_in_the_consumers_slab_and_freed_at_the_producer(
    two_nodes: tuple[TransportProcess, TransportProcess], tmp_path: Path
) -> None:
    producer, consumer = two_nodes
    production = produce(producer)
    await publish(production)

    async with consumer.transport.consume(producer.tensor_id()) as tensor:
        production.release()
        await until(lambda: producer.held_bytes == 0)
        assert bytes(tensor.view) == DATA
        assert (tensor.dtype, tensor.shape, tensor.metadata) == ("uint8", (64, 256), b"metadata")
        assert Path(tensor.location.path).parent == tmp_path / "other"
        assert consumer.held_bytes > 0
        tensor.check()

    assert consumer.held_bytes == 0


@by_each_protocol
async def test_tensors_are_pulled_concurrently(two_nodes: tuple[TransportProcess, TransportProcess]) -> None:
    producer, consumer = two_nodes
    production = produce(producer)
    contents = [bytes([number]) * (60_000 + number) for number in range(30)]
    reading = [asyncio.create_task(received(consumer, producer, str(number))) for number in range(30)]
    for number, data in enumerate(contents):
        await publish(production, str(number), data)

    assert await asyncio.gather(*reading) == contents
    assert consumer.held_bytes == 0


@by_each_protocol
async def test_a_stream_is_pulled_chunk_by_chunk(two_nodes: tuple[TransportProcess, TransportProcess]) -> None:
    producer, consumer = two_nodes
    production = produce(producer)

    async def write() -> None:
        writer = production.stream("hidden")
        for number in range(50):
            await writer.send(bytes([number]) * MIB, "uint8", (MIB,))
        writer.close()

    writing = asyncio.create_task(write())
    async with aclosing(consumer.transport.consume_stream(producer.tensor_id("hidden"))) as stream:
        assert [chunk.view[-1] async for chunk in stream] == list(range(50))

    await writing
    assert consumer.held_bytes == 0


async def test_a_tensor_that_exceeds_the_consumers_slab_is_refused(cluster: TransportCluster, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    producer = await cluster.transport()
    consumer = await cluster.transport(directory=tmp_path / "other", slab_bytes=MIB, request_bytes=MIB)
    await publish(produce(producer), data=bytes(2 * MIB))

    with pytest.raises(TensorTooLargeError):
        await received(consumer, producer)


@by_each_protocol
async def test_a_pull_waits_for_space_in_the_consumers_full_slab(
    two_nodes: tuple[TransportProcess, TransportProcess],
) -> None:
    producer, consumer = two_nodes

    async def publish_next(invocation: int) -> Production:
        production = produce(producer, invocation=invocation, arrived_us=invocation)
        await publish(production, data=bytes([invocation]) * 2 * MIB)
        return production

    async with AsyncExitStack() as held:
        for invocation in range(3):  # they fill the slab, but for the reserve of the oldest request
            production = await publish_next(invocation)
            await held.enter_async_context(consumer.transport.consume(producer.tensor_id(invocation=invocation)))
            production.release()
        await publish_next(3)
        reading = asyncio.create_task(received(consumer, producer, invocation=3))
        await until(lambda: waiting_tensors(consumer) == 1)

    assert await reading == bytes([3]) * 2 * MIB
    assert consumer.held_bytes == waiting_tensors(consumer) == 0


def waiting_tensors(process: TransportProcess) -> float:
    samples = (sample for metric in process.transport.metrics() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name == "cornserve_transport_waiting_tensors")


@by_each_protocol
async def test_a_tensor_that_is_revoked_during_a_pull_arrives_complete_or_is_lost_and_leaks_no_memory(
    two_nodes: tuple[TransportProcess, TransportProcess],
) -> None:
    """Revokes at every moment, from before the subscription until the tensor has arrived."""
    producer, consumer = two_nodes
    invocation = iterations = 0
    has_arrived = False
    while not has_arrived:
        production = produce(producer, invocation=invocation)
        await publish(production, data=b"1" * 2 * MIB)
        reading = asyncio.create_task(received(consumer, producer, invocation=invocation))
        await run_event_loop(iterations)

        has_arrived = reading.done()
        production.revoke()
        other = produce(producer, invocation=invocation + 1)
        await publish(other, data=b"2" * 2 * MIB)

        try:
            assert await reading == b"1" * 2 * MIB
            assert iterations > 0
        except LostError:
            assert not has_arrived
        await until(lambda: consumer.held_bytes == 0)
        other.release()
        invocation += 2
        iterations += 3 + iterations // 8


@by_each_protocol
@pytest.mark.parametrize("iterations", range(0, 60, 3))
async def test_a_cancelled_pull_leaks_no_memory(
    two_nodes: tuple[TransportProcess, TransportProcess], iterations: int
) -> None:
    producer, consumer = two_nodes
    production = produce(producer)
    await publish(production, data=bytes(2 * MIB))
    reading = asyncio.create_task(received(consumer, producer))
    await run_event_loop(iterations)

    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    production.release()

    await until(lambda: producer.held_bytes == consumer.held_bytes == 0)


async def run_event_loop(iterations: int) -> None:
    for _ in range(iterations):
        await asyncio.sleep(0)


async def test_a_listener_survives_errors_of_accept(
    cluster: TransportCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]

    def fail_first(listener: socket.socket) -> tuple[socket.socket, Any]:
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", fail_first)
    (tmp_path / "other").mkdir()
    producer, consumer = await cluster.transport(), await cluster.transport(directory=tmp_path / "other")
    await publish(produce(producer))

    assert await received(consumer, producer) == DATA
    assert not failures


CAPABILITY = bytes(16)


class PullPair:
    """A producer's listener, and a puller that connects to it."""

    def __init__(self) -> None:
        self.puller = TcpPuller(CREDENTIALS)
        self._listeners: list[ConnectionListener] = []

    async def listen(self, source: PullSource | None) -> str:
        """Returns the endpoint at which the source can be pulled."""
        listener = ConnectionListener(self.puller.serve(lambda _: source), CREDENTIALS)
        self._listeners.append(listener)
        return await listener.listen("127.0.0.1:0")

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.close()
        await self.puller.close()


@pytest.fixture
async def pair() -> AsyncIterator[PullPair]:
    pair = PullPair()
    yield pair
    await pair.close()


@pytest.mark.parametrize(
    ("source", "reason"),
    [(None, "has closed the connection"), (pull_source(DATA, lambda: False), "was freed during the pull")],
)
async def test_a_tensor_that_is_freed_before_or_during_a_pull_is_lost(
    pair: PullPair, source: PullSource | None, reason: str
) -> None:
    endpoint = await pair.listen(source)

    with pytest.raises(LostError, match=reason):
        await pair.puller.pull(endpoint, CAPABILITY, pull_target(bytearray(len(DATA))))


async def test_both_ends_of_a_connection_use_keepalive(pair: PullPair) -> None:
    endpoint = await pair.listen(pull_source(DATA))
    await pair.puller.pull(endpoint, CAPABILITY, pull_target(bytearray(len(DATA))))

    descriptors = connections(endpoint)

    assert len(descriptors) == 2
    for descriptor in descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_a_connection_that_is_in_use_during_a_disconnect_is_closed_afterwards(pair: PullPair) -> None:
    def is_current() -> bool:
        pair.puller.disconnect(endpoint)
        return True

    endpoint = await pair.listen(pull_source(DATA, is_current))
    into = bytearray(len(DATA))

    await pair.puller.pull(endpoint, CAPABILITY, pull_target(into))

    assert into == DATA
    await until(lambda: connections(endpoint) == [])


async def test_a_consumer_that_sends_more_than_a_request_is_disconnected(pair: PullPair) -> None:
    endpoint = await pair.listen(pull_source(DATA))
    connection = await sockets.connect(endpoint)
    await handshake.connect(connection, PREAMBLE, CREDENTIALS)

    reader, writer = await asyncio.open_connection(sock=connection)
    writer.write(bytes(1000))

    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


async def test_a_consumer_that_does_not_read_is_disconnected_if_too_many_pull(
    pair: PullPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.transport.pull.tcp_protocols.MAX_SENDING", 2)
    large = bytes(32 * MIB)
    endpoint = await pair.listen(pull_source(large))
    async with AsyncExitStack() as stack:
        stalled = [await sockets.connect(endpoint) for _ in range(2)]
        for connection in stalled:
            stack.callback(connection.close)
            await handshake.connect(connection, PREAMBLE, CREDENTIALS)
            await asyncio.get_running_loop().sock_sendall(connection, CAPABILITY)
            assert await asyncio.get_running_loop().sock_recv(connection, 1) == large[:1]

        await pair.puller.pull(endpoint, CAPABILITY, pull_target(bytearray(len(large))))

        complete = [await receives(connection, len(large)) for connection in stalled]
        assert sorted(complete) == [False, True]


async def receives(connection: socket.socket, nbytes: int) -> bool:
    """Returns whether this many bytes arrive before the other end closes the connection."""
    with suppress(ConnectionResetError):
        while nbytes > 0 and (data := await asyncio.get_running_loop().sock_recv(connection, MIB)):
            nbytes -= len(data)
    return nbytes <= 0


def connections(endpoint: str) -> list[int]:
    """Returns the descriptors of both ends of the connections to an endpoint."""
    _, port = sockets.split_endpoint(endpoint)
    return [
        connection.fd
        for connection in psutil.Process().net_connections("tcp")
        if connection.status != psutil.CONN_LISTEN and port in (connection.laddr.port, connection.raddr.port)
    ]
