"""Limits for the memory and the work that one end of a connection can cause at the other end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from cornserve.transport.protocol import MAX_COMMAND_BYTES, PRODUCER_CODEC
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.frame_memory import FRAME_SECONDS, MIB, UNCOUNTED_BYTES, FrameMemory
from cornserve.wire.frame_reader import FRAMES_PER_ITERATION
from cornserve.wire.invocations import EXECUTOR
from cornserve.wire.listener import ConnectionListener
from tests.credentials import CREDENTIALS
from tests.loop_clock import LoopClock
from tests.raw_connection import authenticated
from tests.waiting import until

READ_BYTES = MIB
"""More than an event loop reads at once."""

LIMIT = 8 * MIB
REPLY = "x" * 1000


class CommandServer:
    """Accepts connections that send commands, and keeps the size of each command."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.memory = FrameMemory(LIMIT)
        self.connections: list[MessageConnection[pb.Event, pb.Command]] = []
        self.received: list[int] = []
        self._stack = stack

    async def start(self) -> None:
        listener = ConnectionListener({EXECUTOR.preamble: self._create}, CREDENTIALS)
        self._endpoint = await listener.listen("127.0.0.1:0")
        self._stack.push_async_callback(listener.close)

    def _create(self) -> MessageConnection[pb.Event, pb.Command]:
        def receive(command: pb.Command | None) -> None:
            assert command is not None
            self.received.append(len(command.start.request))
            connection.send(pb.Event(call=command.call, end=pb.End(message=REPLY)))

        codec = replace(EXECUTOR, max_unsent=100)
        connection = MessageConnection(codec, receive, memory=self.memory)
        self.connections.append(connection)
        self._stack.push_async_callback(connection.wait_closed)
        self._stack.callback(connection.abort, "the test has ended")
        return connection

    async def connect(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Sends the bytes after the handshake. The caller must read what the server sends."""
        reader, writer = await authenticated(self._endpoint)
        self._stack.callback(writer.close)
        writer.write(sent)
        return reader, writer


@pytest.fixture
async def server() -> AsyncIterator[CommandServer]:
    async with AsyncExitStack() as stack:
        server = CommandServer(stack)
        await server.start()
        yield server


def command(nbytes: int, call: int = 1) -> bytes:
    content = pb.Command(call=call, start=pb.Start(request=bytes(nbytes))).SerializeToString()
    return len(content).to_bytes(4, "big") + content


def stalled(nbytes: int) -> bytes:
    """Returns the first bytes of a frame that is ten times as long."""
    return (10 * nbytes).to_bytes(4, "big") + bytes(nbytes)


async def test_unfinished_frames_of_all_connections_stay_within_the_limit(
    server: CommandServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An honest frame always makes progress in this time, also on a busy machine.
    monkeypatch.setattr("cornserve.wire.frame_memory.CONTENTION_SECONDS", 0.2)
    monkeypatch.setattr("cornserve.wire.frame_memory.CONTENTION_BYTES_PER_SECOND", 1)
    monkeypatch.setattr("cornserve.wire.frame_memory.CHECK_SECONDS", 0.01)
    for _ in range(12):
        await server.connect(stalled(2 * MIB))
    await until(lambda: server.memory.buffered_bytes > LIMIT)
    used = []
    await server.connect(command(LIMIT // 2))

    def is_received() -> bool:
        used.append(server.memory.buffered_bytes)
        return bool(server.received)

    await until(is_received)

    assert max(used) <= LIMIT + 13 * READ_BYTES
    assert server.received == [LIMIT // 2]


async def test_honest_frames_that_exceed_the_memory_together_all_arrive(server: CommandServer) -> None:
    await asyncio.gather(*(server.connect(command(LIMIT // 2, call)) for call in range(8)))

    await until(lambda: len(server.received) == 8)

    assert server.memory.buffered_bytes == 0


async def test_a_frame_that_is_nearly_complete_goes_first(
    server: CommandServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.wire.frame_memory.CONTENTION_SECONDS", 1000)
    for _ in range(3):
        await server.connect(stalled(LIMIT))
    await until(lambda: server.memory.buffered_bytes > LIMIT)

    await server.connect(command(LIMIT // 2))

    await until(lambda: server.received == [LIMIT // 2])
    assert len(server.connections) == 4


async def test_small_frames_do_not_wait_for_memory(server: CommandServer) -> None:
    stalled_connections = [await server.connect(stalled(LIMIT)) for _ in range(2)]
    await until(lambda: server.memory.buffered_bytes > LIMIT)

    await server.connect(command(UNCOUNTED_BYTES // 2) * 10)

    await until(lambda: len(server.received) == 10)
    assert not any(reader.at_eof() for reader, _ in stalled_connections)


async def test_a_frame_that_does_not_arrive_in_time_closes_its_connection_only(
    server: CommandServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.wire.frame_memory.FRAME_SECONDS", 0.02)
    await server.connect(stalled(MIB))
    await until(lambda: len(server.connections) == 1)

    assert "did not arrive within 0.02 s" in await server.connections[0].wait_closed()

    assert server.memory.buffered_bytes == 0
    await server.connect(command(1))
    await until(lambda: server.received == [1])


async def test_each_frame_has_its_own_time(clock: LoopClock) -> None:
    received: list[pb.Command | None] = []
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(
        EXECUTOR, received.append, memory=FrameMemory(LIMIT)
    )
    frame = command(4 * UNCOUNTED_BYTES)
    begin, end = frame[: len(frame) // 2], frame[len(frame) // 2 :]
    connection.data_received(begin)

    for _ in range(3):
        clock.advance(0.6 * FRAME_SECONDS)
        await asyncio.sleep(0)
        connection.data_received(end + begin)  # One read has the end of a frame and a part of the next one.

    await asyncio.sleep(0)
    assert len(received) == 3
    assert not connection.closed.is_set()
    connection.abort("the test has ended")


async def test_a_closed_connection_frees_the_memory_of_its_frame(server: CommandServer) -> None:
    _, writer = await server.connect(stalled(MIB))
    await until(lambda: server.memory.buffered_bytes > 0)

    writer.close()

    await until(lambda: server.memory.buffered_bytes == 0)


async def test_no_further_message_is_read_while_the_other_end_does_not_read(server: CommandServer) -> None:
    count = 50_000
    reader, writer = await server.connect()
    sending = asyncio.create_task(_send_all(writer, count))
    sent: list[int] = []

    def is_stuck() -> bool:
        sent.append(len(server.received))
        return len(sent) > 20 and sent[-20] == sent[-1] > 0

    await until(is_stuck)

    assert len(server.received) < count
    assert len(server.connections[0].unsent) < 100 + FRAMES_PER_ITERATION
    await reader.readexactly(count * len(REPLY))
    await until(lambda: len(server.received) == count)
    await sending


async def _send_all(writer: asyncio.StreamWriter, count: int) -> None:
    for _ in range(count // 1000):
        writer.write(command(1) * 1000)
        await writer.drain()


async def test_other_tasks_run_between_the_messages_of_one_read(server: CommandServer) -> None:
    reader, _ = await server.connect(command(1) * 20 * FRAMES_PER_ITERATION)
    reading = asyncio.create_task(reader.readexactly(20 * FRAMES_PER_ITERATION * len(REPLY)))
    counts = [len(server.received)]

    def is_complete() -> bool:
        counts.append(len(server.received))
        return counts[-1] == 20 * FRAMES_PER_ITERATION

    while not is_complete():
        await asyncio.sleep(0)

    await reading
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 2 * FRAMES_PER_ITERATION


async def test_received_messages_are_handled_when_the_connection_breaks(server: CommandServer) -> None:
    count = 10 * FRAMES_PER_ITERATION
    received: list[pb.Command | None] = []
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, received.append)
    connection.data_received(command(1) * count)
    assert len(received) == FRAMES_PER_ITERATION

    connection.connection_lost(ConnectionResetError())

    assert len(received) == count


async def test_a_message_after_the_last_one_closes_the_connection(server: CommandServer) -> None:
    received: list[pb.Command | None] = []
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, received.append)
    connection.data_received(bytes(4) + command(1))

    connection.connection_lost(None)

    assert received == [None]
    assert await connection.wait_closed() == "the other end sent a message after its last one"


async def test_messages_of_the_transfer_protocol_are_small() -> None:
    connection = MessageConnection(PRODUCER_CODEC, lambda message: None)

    connection.data_received((MAX_COMMAND_BYTES + 1).to_bytes(4, "big"))

    connection.connection_lost(None)
    expected = f"the other end sent a frame of {MAX_COMMAND_BYTES + 1} bytes, the limit is {MAX_COMMAND_BYTES}"
    assert await connection.wait_closed() == expected
