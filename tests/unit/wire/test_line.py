"""The line between gateway and executor: what a connection has to bear."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import (
    FULL_FRAME_BYTES,
    MAX_FRAME_BYTES,
    MAX_FRAME_MESSAGES,
    MessageConnection,
    address_of,
)
from cornserve.wire.frame import packed
from cornserve.wire.invocations import EXECUTOR
from tests.invoking import Caller
from tests.unit.echo_executors import EchoExecutors
from tests.waiting import until


def echo(text: str) -> pb.Command:
    request = b'{"text": "%s"}' % text.encode()
    return pb.Command(call=1, start=pb.Start(request_id="r", request=request, outputs=["words"]))


async def answer(caller: Caller, text: str) -> list[bytes]:
    """The words, and the values at the end."""
    caller.send(echo(text))
    said: list[bytes] = []
    async for frame in caller:
        for event in frame.events:
            if event.HasField("end"):
                assert event.end.code == pb.CODE_OK, event.end.message
                return [*said, event.end.values]
            said.append(event.chunk.item)
    raise AssertionError("no end")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /metrics HTTP/1.1\r\nHost: executor\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        EXECUTOR.greeting[:-1] + b"!",
        EXECUTOR.greeting + (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        EXECUTOR.greeting + b"\x00\x00\x00\x04\xff\xff\xff\xff",
    ],
    ids=["HTTP", "gRPC", "TLS", "another greeting", "a frame too long", "no message"],
)
async def test_who_speaks_something_else_is_left_and_harms_nobody(
    endpoint: str, executors: EchoExecutors, caller: Caller, sent: bytes
) -> None:
    assert await answer(caller, "a") == [b'"a"', b'{"text":"a","words_sent":1}']
    reader, writer = await asyncio.open_connection(*address_of(endpoint))

    writer.write(sent)

    await _left(reader)
    writer.close()
    assert await answer(caller, "b") == [b'"b"', b'{"text":"b","words_sent":1}']
    await until(lambda: executors.states[endpoint].callers == 1)


async def _left(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            await reader.read()


async def test_who_connects_and_says_nothing_is_no_caller(
    endpoint: str, executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.wire.listener.GREETING_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection(*address_of(endpoint))

    await _left(reader)

    assert executors.states[endpoint].callers == 0
    writer.close()


async def test_frames_may_arrive_byte_by_byte(endpoint: str) -> None:
    frame = pb.InvokeRequest(commands=[echo("a")]).SerializeToString()
    reader, writer = await asyncio.open_connection(*address_of(endpoint))
    for byte in EXECUTOR.greeting + len(frame).to_bytes(4, "big") + frame + bytes(4):
        writer.write(bytes([byte]))
        await writer.drain()

    received = await reader.read()

    assert received.startswith(EXECUTOR.greeting)
    assert received.endswith(bytes(4))
    assert b'{"text":"a","words_sent":1}' in received
    writer.close()


async def test_a_message_of_fifty_megabytes_passes(caller: Caller) -> None:
    text = "a" * 50_000_000
    assert (await answer(caller, text))[0] == b'"%s"' % text.encode()


async def test_long_messages_share_no_frame_and_short_ones_do() -> None:
    frames: list[list[int]] = []

    def noted(events: Sequence[pb.Event]) -> bytes:
        frames.append([event.ByteSize() for event in events])
        return packed(events)

    line: MessageConnection[pb.Event, pb.InvokeRequest] = MessageConnection(
        replace(EXECUTOR, pack=noted), lambda frame: None
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await asyncio.get_running_loop().create_connection(lambda: line, *listener.getsockname())
        theirs, _ = await asyncio.to_thread(listener.accept)
    theirs.sendall(EXECUTOR.greeting)
    await line.greeted()
    reading = asyncio.create_task(asyncio.to_thread(_read_all, theirs))
    sizes = [10, 20_000_000, 20_000_000, *[3_000_000] * 4, *[10] * 100]
    for call, size in enumerate(sizes):
        line.put(pb.Event(call=call, end=pb.End(values=bytes(size))))
    await until(lambda: not line.waiting)
    line.abort("read")
    await reading

    assert [len(frame) for frame in frames] == [1, 1, 1, 2, MAX_FRAME_MESSAGES, 102 - MAX_FRAME_MESSAGES]
    assert all(len(frame) == 1 or sum(frame) <= FULL_FRAME_BYTES for frame in frames)


async def test_what_a_slow_reader_has_not_taken_stays_where_it_can_be_bounded() -> None:
    """Between sender and connection, where whoever sends can wait until there is room."""
    line: MessageConnection[pb.Event, pb.InvokeRequest] = MessageConnection(EXECUTOR, lambda frame: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: line, *address)
        theirs, _ = await asyncio.to_thread(listener.accept)
    theirs.sendall(EXECUTOR.greeting)
    await line.greeted()
    for call in range(1000):
        line.put(pb.Event(call=call, end=pb.End(values=bytes(100_000))))
    await until(lambda: 0 < len(line.waiting) < 1000)
    room = asyncio.ensure_future(line.room(1))
    waiting = len(line.waiting)

    assert transport.get_write_buffer_size() < (MAX_FRAME_MESSAGES + 1) * 101_000
    assert not room.done()

    reading = asyncio.create_task(asyncio.to_thread(_read_all, theirs))
    await room
    line.abort("read")
    assert await reading > (1000 - waiting) * 100_000


def _read_all(connection: socket.socket) -> int:
    with connection:
        return sum(len(data) for data in iter(lambda: connection.recv(1 << 20), b""))


FRAMES = [pb.InvokeRequest(commands=[pb.Command(call=call)]) for call in range(3)]
SENT = [len(frame.SerializeToString()).to_bytes(4, "big") + frame.SerializeToString() for frame in FRAMES]
GREETING, END = EXECUTOR.greeting, bytes(4)


@pytest.mark.parametrize(
    "pieces",
    [
        [GREETING, *SENT, END],
        [GREETING + b"".join(SENT) + END],
        [GREETING + SENT[0], SENT[1] + SENT[2][:3], SENT[2][3:] + END],
        [GREETING, SENT[0][:4], SENT[0][4:] + SENT[1], SENT[2], END],
        [GREETING[:3], GREETING[3:] + SENT[0][:2], SENT[0][2:], SENT[1] + SENT[2] + END],
    ],
    ids=["one by one", "all at once", "half a frame behind another", "half a frame alone", "half a greeting"],
)
async def test_frames_are_the_same_in_whatever_pieces_they_arrive(pieces: list[bytes]) -> None:
    taken: list[pb.InvokeRequest | None] = []
    line: MessageConnection[pb.Event, pb.InvokeRequest] = MessageConnection(EXECUTOR, taken.append)

    for piece in pieces:
        line.data_received(piece)

    assert taken == [*FRAMES, None]


async def test_a_frame_that_comes_after_the_line_was_given_up_is_not_taken() -> None:
    taken: list[pb.InvokeRequest | None] = []
    line: MessageConnection[pb.Event, pb.InvokeRequest] = MessageConnection(EXECUTOR, taken.append)
    line.data_received(GREETING)
    line.abort("enough")

    line.data_received(SENT[0])

    assert taken == []
