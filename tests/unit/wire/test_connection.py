"""The connection between gateway and executor."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from google.protobuf.message import EncodeError

from cornserve.observe.redaction import TRACEBACK
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.codec import MessageSizeError
from cornserve.wire.connection import MessageConnection
from cornserve.wire.frame_reader import MAX_FRAME_BYTES
from cornserve.wire.invocations import EXECUTOR
from cornserve.wire.unsent_messages import WRITE_BYTES
from cornserve_echo import EchoTask
from tests.executor_caller import Caller, calling
from tests.raw_connection import authenticated
from tests.unit.echo_executors import EchoExecutors
from tests.waiting import until

END = bytes(4)


def echo(text: str) -> pb.Command:
    request = b'{"text": "%s"}' % text.encode()
    return pb.Command(call=1, start=pb.Start(request_id="r", request=request, outputs=["words"]))


async def invoke(caller: Caller, text: str) -> list[bytes]:
    """Returns the words, then the values of the end."""
    caller.send(echo(text))
    words: list[bytes] = []
    async for event in caller:
        if event.HasField("end"):
            assert event.end.code == pb.CODE_OK, event.end.message
            return [*words, event.end.values]
        words.append(event.chunk.item)
    raise AssertionError("no end")


def framed(message: pb.Command | pb.Event) -> bytes:
    content = message.SerializeToString()
    return len(content).to_bytes(4, "big") + content


@pytest.mark.parametrize(
    "sent",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x04\xff\xff\xff\xff",
        framed(pb.Command(call=1)),
    ],
    ids=["a frame that is too long", "an invalid message", "an unknown command"],
)
async def test_a_caller_that_sends_invalid_frames_is_disconnected_and_others_are_not_affected(
    endpoint: str, executors: EchoExecutors, caller: Caller, sent: bytes
) -> None:
    assert await invoke(caller, "a") == [b'"a"', b'{"text":"a","words_sent":1}']
    reader, writer = await authenticated(endpoint)

    writer.write(sent)

    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            await reader.read()
    writer.close()
    assert await invoke(caller, "b") == [b'"b"', b'{"text":"b","words_sent":1}']
    await until(lambda: executors.states[endpoint].callers == 1)


async def test_frames_may_arrive_byte_by_byte(endpoint: str) -> None:
    reader, writer = await authenticated(endpoint)
    for byte in framed(echo("a")) + END:
        writer.write(bytes([byte]))
        await writer.drain()

    received = await reader.read()

    assert received.endswith(END)
    assert b'{"text":"a","words_sent":1}' in received
    writer.close()


@pytest.mark.slow
async def test_a_message_of_fifty_megabytes_passes(caller: Caller) -> None:
    text = "a" * 50_000_000
    assert (await invoke(caller, text))[0] == b'"%s"' % text.encode()


async def _connected(connection: MessageConnection[pb.Event, pb.Command]) -> tuple[asyncio.Transport, socket.socket]:
    """Connects the connection to a socket that only the test reads. A socket pair needs no handshake."""
    own, peer = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: connection, sock=own)
    return transport, peer


async def test_messages_of_one_iteration_leave_in_one_write_each_in_its_own_frame() -> None:
    writes: list[None] = []
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(
        EXECUTOR, lambda message: None, lambda: writes.append(None)
    )
    _, peer = await _connected(connection)
    events = [pb.Event(call=call, end=pb.End(values=b"{}")) for call in range(100)]

    for event in events:
        connection.send(event)
    await until(lambda: not connection.unsent)
    connection.abort("done")

    assert len(writes) == 1
    assert await asyncio.to_thread(_read_all, peer) == b"".join(map(framed, events))


async def test_messages_stay_unsent_while_the_other_end_reads_too_slowly() -> None:
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, lambda message: None)
    transport, peer = await _connected(connection)
    for call in range(1000):
        connection.send(pb.Event(call=call, end=pb.End(values=bytes(100_000))))
    await until(lambda: 0 < len(connection.unsent) < 1000)
    capacity = asyncio.ensure_future(connection.wait_for_capacity(1))
    unsent = len(connection.unsent)

    assert transport.get_write_buffer_size() < 2 * (WRITE_BYTES + 101_000)
    assert not capacity.done()

    reading = asyncio.create_task(asyncio.to_thread(_read_all, peer))
    await capacity
    connection.abort("done")
    assert len(await reading) > (1000 - unsent) * 100_000


async def test_a_sender_waits_while_too_many_bytes_are_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.wire.connection.MAX_UNSENT_BYTES", 1000)
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(
        replace(EXECUTOR, max_unsent=None), lambda message: None
    )
    connection.send(pb.Event(call=1, end=pb.End(values=bytes(1000))))
    capacity = asyncio.ensure_future(connection.wait_for_capacity(2))
    await asyncio.sleep(0)
    assert not capacity.done()

    _, peer = await _connected(connection)

    await capacity
    connection.abort("done")
    peer.close()


def _read_all(peer: socket.socket) -> bytes:
    with peer:
        return b"".join(iter(lambda: peer.recv(1 << 20), b""))


MESSAGES = [pb.Command(call=call) for call in range(1, 4)]
FRAMES = [framed(message) for message in MESSAGES]


@pytest.mark.parametrize(
    "reads",
    [
        [*FRAMES, END],
        [b"".join(FRAMES) + END],
        [FRAMES[0], FRAMES[1] + FRAMES[2][:3], FRAMES[2][3:] + END],
        [FRAMES[0][:4], FRAMES[0][4:] + FRAMES[1], FRAMES[2], END],
        [FRAMES[0][:2], FRAMES[0][2:], FRAMES[1] + FRAMES[2] + END],
    ],
    ids=["one by one", "all at once", "half a frame after another", "half a frame alone", "half a length"],
)
async def test_messages_do_not_depend_on_how_the_frames_are_split(reads: list[bytes]) -> None:
    received: list[pb.Command | None] = []
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, received.append)

    for data in reads:
        connection.data_received(data)

    assert received == [*MESSAGES, None]


async def test_no_message_is_received_after_an_abort() -> None:
    received: list[pb.Command | None] = []
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, received.append)
    connection.abort("done")

    connection.data_received(FRAMES[0])

    assert received == []


async def test_no_message_of_the_same_read_is_received_after_an_abort() -> None:
    received: list[pb.Command | None] = []

    def abort(message: pb.Command | None) -> None:
        received.append(message)
        connection.abort("done")

    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, abort)

    connection.data_received(b"".join(FRAMES))

    assert received == MESSAGES[:1]


@pytest.mark.parametrize("reads", [[FRAMES[0]], [FRAMES[0][:5], FRAMES[0][5:]]], ids=["whole frame", "split frame"])
async def test_an_error_in_the_handling_of_a_message_closes_the_connection(
    reads: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    content = "part of a request"

    def fail(message: pb.Command | None) -> None:
        raise RuntimeError(content)

    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, fail)
    _, peer = await _connected(connection)

    for data in reads:
        connection.data_received(data)

    peer.close()
    assert await connection.wait_closed() == "this end cannot process a message: RuntimeError"
    assert caplog.records[-1].__dict__[TRACEBACK].endswith("builtins.RuntimeError")
    assert content not in caplog.text


async def test_an_exception_that_is_kept_does_not_affect_later_messages() -> None:
    received: list[pb.Command | None] = []
    kept: list[Exception] = []

    def keep(message: pb.Command | None) -> None:
        received.append(message)
        try:
            raise RuntimeError
        except RuntimeError as error:
            kept.append(error)

    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(EXECUTOR, keep)

    for data in (FRAMES[0][:5], FRAMES[0][5:] + FRAMES[1][:3], FRAMES[1][3:], FRAMES[2]):
        connection.data_received(data)

    assert received == MESSAGES


@pytest.mark.parametrize("message", [pb.Event(), pb.Event(call=1, end=pb.End(values=bytes(100)))], ids=["empty", "big"])
async def test_a_message_that_does_not_fit_into_a_frame_is_not_sent(message: pb.Event) -> None:
    codec = replace(EXECUTOR, max_sent_bytes=100)
    connection: MessageConnection[pb.Event, pb.Command] = MessageConnection(codec, lambda message: None)

    with pytest.raises(MessageSizeError):
        connection.send(message)

    assert connection.unsent == []


def test_a_message_that_protobuf_cannot_encode_is_refused() -> None:
    """Its limit is 2 GiB."""

    def serialize() -> bytes:
        raise EncodeError("Failed to serialize proto")

    message = cast("pb.Event", SimpleNamespace(SerializeToString=serialize))

    with pytest.raises(MessageSizeError, match="the message cannot be encoded: Failed to serialize proto"):
        EXECUTOR.encode(message, ())


async def test_an_output_that_is_too_large_ends_its_invocation_only(
    executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = pb.Command(call=2, start=pb.Start(request_id="r", request=b'{"text": "%s"}' % (b"a" * 1000)))
    # The output is a few bytes longer, because it contains `words_sent`.
    limited = replace(EXECUTOR, max_sent_bytes=command.ByteSize())
    monkeypatch.setattr("cornserve_executors.base.service.EXECUTOR", limited)
    async with calling(await executors.endpoint(EchoTask().spec)) as caller:
        caller.send(command)

        event = await caller.read()

        assert event is not None
        assert (event.call, event.end.code) == (2, pb.CODE_INTERNAL)
        assert "the output is too large: the message has" in event.end.message
        assert await invoke(caller, "a") == [b'"a"', b'{"text":"a","words_sent":1}']
