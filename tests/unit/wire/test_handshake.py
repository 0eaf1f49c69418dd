"""The handshake at the start of each connection: both ends prove that they have the instance's secret."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from cornserve.instance_secret import InstanceSecret
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire import handshake, sockets
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.handshake import NONCE_BYTES, PROOF_BYTES, HandshakeError, ProofError
from cornserve.wire.invocations import CALLER
from tests.credentials import CREDENTIALS
from tests.executor_caller import Caller, calling
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.wire.test_connection import echo, framed, invoke
from tests.waiting import until

PREAMBLE = CALLER.preamble
HELLO = PREAMBLE + bytes(NONCE_BYTES)
OTHER_CREDENTIALS = ConnectionCredentials(InstanceSecret(bytes(32)))

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
StartExecutor = Callable[[Callable[[Streams], Awaitable[None]]], Awaitable[str]]


@asynccontextmanager
async def connected(endpoint: str) -> AsyncIterator[Streams]:
    """A connection without a handshake."""
    reader, writer = await asyncio.open_connection(*sockets.split_endpoint(endpoint))
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            return await reader.read()
    return b""


@pytest.fixture
async def impostor() -> AsyncIterator[StartExecutor]:
    """Starts servers that claim to be executors. Their handlers read and write bytes."""
    servers: list[asyncio.Server] = []

    async def start(serve: Callable[[Streams], Awaitable[None]]) -> str:
        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await serve((reader, writer))
            writer.close()

        servers.append(await asyncio.start_server(on_connection, "127.0.0.1"))
        return f"127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()


async def test_a_caller_with_another_secret_is_refused_and_both_ends_say_so(
    endpoint: str, executors: EchoExecutors, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(HandshakeError, match="closed the connection during the handshake: see its log"):
        await Caller(OTHER_CREDENTIALS).connect(endpoint)

    assert executors.states[endpoint].callers == 0
    assert "closed a connection of 127.0.0.1:" in caplog.text
    assert "does not have the secret of this instance" in caplog.text
    assert CREDENTIALS.secret.key.hex() not in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /metrics HTTP/1.1\r\nHost: executor\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        PREAMBLE[:-1] + b"!",
        b"cornserve.v1.Executor/2\n",
        PREAMBLE + framed(echo("a")) + bytes(NONCE_BYTES),
        HELLO + b"\0",
        HELLO + bytes(PROOF_BYTES),
    ],
    ids=["HTTP", "gRPC", "TLS", "preamble", "version", "frame", "surplus", "wrong proof"],
)
async def test_a_client_without_the_secret_is_disconnected_and_others_are_not_affected(
    endpoint: str, executors: EchoExecutors, caller: Caller, sent: bytes
) -> None:
    async with connected(endpoint) as (reader, writer):
        writer.write(sent)

        received = await read_to_end(reader)

    assert len(received) <= len(HELLO)
    assert executors.states[endpoint].callers == 1
    assert await invoke(caller, "b") == [b'"b"', b'{"text":"b","words_sent":1}']


async def test_a_handshake_may_arrive_byte_by_byte(endpoint: str) -> None:
    connection = await sockets.connect(endpoint)
    nonce = bytes(NONCE_BYTES)
    loop = asyncio.get_running_loop()
    for byte in PREAMBLE + nonce:
        await loop.sock_sendall(connection, bytes([byte]))
        await asyncio.sleep(0)
    hello = b""
    while len(hello) < len(HELLO):
        hello += await loop.sock_recv(connection, len(HELLO) - len(hello))
    address = sockets.remote_address(connection)
    challenge = handshake.Challenge(PREAMBLE, address, nonce, hello[len(PREAMBLE) :])
    for byte in challenge.proof(handshake.CONNECTING, CREDENTIALS) + framed(echo("a")) + bytes(4):
        await loop.sock_sendall(connection, bytes([byte]))
        await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection(sock=connection)

    received = await read_to_end(reader)

    assert received.startswith(challenge.proof(handshake.ACCEPTING, CREDENTIALS))
    assert b'{"text":"a","words_sent":1}' in received
    writer.close()


async def test_a_caller_sends_nothing_to_an_executor_with_another_proof(impostor: StartExecutor) -> None:
    received: list[bytes] = []

    async def serve(streams: Streams) -> None:
        reader, writer = streams
        await reader.readexactly(len(HELLO))
        writer.write(HELLO)
        await reader.readexactly(PROOF_BYTES)
        writer.write(bytes(PROOF_BYTES))
        received.append(await reader.read())

    caller = Caller()
    caller.send(echo("a"))

    with pytest.raises(ProofError, match="does not have the secret of this instance"):
        await caller.connect(await impostor(serve))

    await until(lambda: received == [b""])


async def test_a_caller_does_not_accept_its_own_bytes(impostor: StartExecutor) -> None:
    async def reflect(streams: Streams) -> None:
        reader, writer = streams
        while data := await reader.read(1000):
            writer.write(data)

    with pytest.raises(ProofError):
        await Caller().connect(await impostor(reflect))


async def test_the_bytes_of_another_connection_are_not_accepted(endpoint: str, executors: EchoExecutors) -> None:
    sent: list[bytes] = []
    connection = await sockets.connect(endpoint)
    sendall = asyncio.get_running_loop().sock_sendall

    async def record(target: socket.socket, data: bytes) -> None:
        if target is connection:
            sent.append(data)
        await sendall(target, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "sock_sendall", record)
        await handshake.connect(connection, PREAMBLE, CREDENTIALS)
    connection.close()
    await until(lambda: executors.states[endpoint].callers == 0)

    async with connected(endpoint) as (reader, writer):
        writer.write(sent[0])
        await reader.readexactly(len(HELLO))
        writer.write(sent[1] + framed(echo("a")))

        assert await read_to_end(reader) == b""


async def test_a_process_at_another_address_cannot_pass_proofs_on(endpoint: str, impostor: StartExecutor) -> None:
    passed: list[bytes] = []

    async def relay(streams: Streams) -> None:
        reader, writer = streams
        async with connected(endpoint) as (executor, to_executor):
            to_executor.write(await reader.readexactly(len(HELLO)))
            writer.write(await executor.readexactly(len(HELLO)))
            to_executor.write(await reader.readexactly(PROOF_BYTES))
            passed.append(await read_to_end(executor))

    with pytest.raises(HandshakeError, match="closed the connection during the handshake"):
        await Caller().connect(await impostor(relay))

    assert passed == [b""]


async def test_a_handshake_has_a_time_limit(
    endpoint: str, executors: EchoExecutors, clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(endpoint) as (reader, writer):
        writer.write(HELLO)

        assert len(await clock.advance_during(read_to_end(reader), step=1)) == len(HELLO)

    assert executors.states[endpoint].callers == 0
    assert "no handshake within 5 s" in caplog.text


async def test_unauthenticated_connections_cannot_occupy_all_places(
    endpoint: str, executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.wire.listener.MAX_PENDING", 8)
    monkeypatch.setattr("cornserve.wire.listener.HANDSHAKE_SECONDS", 1000.0)
    idle = [await asyncio.open_connection(*sockets.split_endpoint(endpoint)) for _ in range(20)]

    async with calling(endpoint) as caller:
        assert await invoke(caller, "a") == [b'"a"', b'{"text":"a","words_sent":1}']
        assert await asyncio.gather(*(read_to_end(reader) for reader, _ in idle[:12])) == [b""] * 12

    for _, writer in idle:
        writer.close()


async def test_established_connections_are_served_between_connection_attempts(endpoint: str, caller: Caller) -> None:
    """Connects as fast as possible, while a caller invokes the executor."""
    address = sockets.split_endpoint(endpoint)
    attempts = 0

    def connect() -> None:
        nonlocal attempts
        while not done.is_set():
            with suppress(OSError), socket.create_connection(address):
                attempts += 1

    done = asyncio.Event()
    flood = [asyncio.create_task(asyncio.to_thread(connect)) for _ in range(2)]
    try:
        async with asyncio.timeout(60):
            for _ in range(100):
                await invoke(caller, "a")
            async with calling(endpoint) as other:
                await invoke(other, "a")
    finally:
        done.set()
        await asyncio.gather(*flood)
    assert attempts > 0


async def test_a_connection_that_is_aborted_during_its_handshake_is_closed(impostor: StartExecutor) -> None:
    is_connected = asyncio.Event()

    async def stay_silent(streams: Streams) -> None:
        is_connected.set()
        assert await streams[0].read(1000)
        assert await streams[0].read() == b""

    connection: MessageConnection[pb.Command, pb.Event] = MessageConnection(CALLER, lambda event: None)
    connecting = asyncio.create_task(connection.connect(await impostor(stay_silent), CREDENTIALS))
    await is_connected.wait()

    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    connection.abort("done")

    assert await connection.wait_closed() == "done"
