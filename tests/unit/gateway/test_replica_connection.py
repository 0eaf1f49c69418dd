"""The connection to an executor, and its handling of unexpected events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from cornserve.gateway.observe.replica_metrics import ReplicaStats
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import CALLER, EXECUTOR
from cornserve.wire.listener import ConnectionListener
from tests.credentials import CREDENTIALS
from tests.loop_clock import LoopClock

UNKNOWN_EVENT = -1


class ScriptedExecutor:
    """Responds to each start with a chunk and an end, whose code is the request, or with an unknown event."""

    def __init__(self) -> None:
        self.connection = MessageConnection(EXECUTOR, self._on_command)

    def _on_command(self, command: pb.Command | None) -> None:
        if command is not None and command.HasField("start"):
            self.connection.send(pb.Event(call=command.call, chunk=pb.OutputChunk(output="words", item=b"1")))
            code = int(command.start.request)
            end = None if code == UNKNOWN_EVENT else pb.End(code=code)  # type: ignore[arg-type]
            self.connection.send(pb.Event(call=command.call, end=end))


@dataclass
class RecordingListener:
    """Records the codes and messages of ends. The methods named in `failing` raise."""

    failing: frozenset[str] = frozenset()
    codes: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def on_chunk(self, output: str, item: bytes) -> None:
        if "on_chunk" in self.failing:
            raise RuntimeError("failed")

    def on_replica_leaving(self) -> None: ...

    def on_handed_over(self, message: str, *, has_state: bool) -> None: ...

    def on_inputs_taken(self, inputs: Sequence[int]) -> None: ...

    def on_compute_time(self, seconds: float) -> None: ...

    def on_inputs_lost(self, inputs: Sequence[int], message: str) -> None: ...

    def on_end(self, code: str, message: str, values: bytes) -> None:
        self.codes.append(code)
        self.messages.append(message)
        self.ended.set()
        if "on_end" in self.failing:
            raise RuntimeError("failed")


@pytest_asyncio.fixture(loop_scope="module")
async def replica() -> AsyncIterator[ReplicaConnection]:
    listener = ConnectionListener({EXECUTOR.preamble: lambda: ScriptedExecutor().connection}, CREDENTIALS)
    replica = ReplicaConnection(await listener.listen("127.0.0.1:0"), CREDENTIALS, ReplicaStats())
    yield replica
    await replica.close()
    await listener.close()


def _start(replica: ReplicaConnection, listener: RecordingListener, code: int = 0) -> int:
    return replica.start_invocation(pb.Command(start=pb.Start(request=str(code).encode())), listener)


async def _run(replica: ReplicaConnection, code: int, *failing: str) -> list[str]:
    listener = RecordingListener(frozenset(failing))
    _start(replica, listener, code)
    async with asyncio.timeout(60):
        await listener.ended.wait()
    return listener.codes


async def test_an_unknown_code_is_an_internal_error_of_its_call_only(replica: ReplicaConnection) -> None:
    assert await _run(replica, 99) == ["INTERNAL"]
    assert await _run(replica, pb.CODE_OK) == ["OK"]
    assert replica.lost_at is None


@pytest.mark.parametrize("method", ["on_chunk", "on_end"])
async def test_a_listener_that_raises_ends_its_call_only(replica: ReplicaConnection, method: str) -> None:
    codes = await _run(replica, pb.CODE_OK, method)

    assert codes[-1] == "INTERNAL"
    assert await _run(replica, pb.CODE_OK) == ["OK"]
    assert replica.lost_at is None
    assert replica.in_flight == 0


async def test_an_unknown_event_closes_the_connection(replica: ReplicaConnection) -> None:
    listener = RecordingListener()
    _start(replica, listener, UNKNOWN_EVENT)
    async with asyncio.timeout(60):
        await listener.ended.wait()

    assert listener.codes == ["ABORTED"]
    assert listener.messages == [f"the executor at {replica.endpoint} was lost: the executor sent an unknown event"]
    assert replica.lost_at is not None


async def test_a_command_that_is_too_large_ends_its_invocation_only(
    replica: ReplicaConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.gateway.request.replica_connection.CALLER", replace(CALLER, max_sent_bytes=100))
    limited = ReplicaConnection(replica.endpoint, CREDENTIALS, ReplicaStats())
    large, small = RecordingListener(), RecordingListener()
    limited.start_invocation(pb.Command(start=pb.Start(request=b"0" * 100)), large)
    _start(limited, small)
    async with asyncio.timeout(60):
        await large.ended.wait()
        await small.ended.wait()

    assert (large.codes, small.codes) == (["INVALID_ARGUMENT"], ["OK"])
    assert large.messages[0].startswith("the input is too large: the message has 10")
    assert limited.lost_at is None
    await limited.close()


async def test_the_loss_of_a_replica_reaches_all_listeners_although_one_raises(replica: ReplicaConnection) -> None:
    listeners = [RecordingListener(frozenset({"on_end"})), RecordingListener()]
    for listener in listeners:
        _start(replica, listener)
    await replica.close()

    assert [listener.codes for listener in listeners] == [["UNAVAILABLE"], ["UNAVAILABLE"]]


async def test_the_loss_of_a_replica_does_not_reach_the_listener_of_a_call_cancelled_meanwhile(
    replica: ReplicaConnection,
) -> None:
    class Producer(RecordingListener):
        def on_end(self, code: str, message: str, values: bytes) -> None:
            super().on_end(code, message, values)
            replica.cancel_invocation(consumer_call)

    producer, consumer = Producer(), RecordingListener()
    _start(replica, producer)
    consumer_call = _start(replica, consumer)
    await replica.close()

    assert (producer.codes, consumer.codes) == (["UNAVAILABLE"], [])


async def _serve(response: bytes, *, hangs_up: bool) -> asyncio.Server:
    """Starts another server at the port of a former executor."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response)
        try:
            await reader.read(1 if hangs_up else -1)
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("response", "hangs_up", "cause"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "the other end does not speak cornserve.v1.Executor/3"),
        (b"", True, "before it sent the preamble cornserve.v1.Executor/3"),
        (b"", False, "cannot connect: no response within 5 s"),
    ],
    ids=["http server", "executor of another version", "silent server"],
)
async def test_an_invocation_is_unavailable_if_the_server_is_not_an_executor(
    response: bytes, hangs_up: bool, cause: str, clock: LoopClock
) -> None:
    async with await _serve(response, hangs_up=hangs_up) as server:
        replica = ReplicaConnection(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", CREDENTIALS, ReplicaStats())

        listener = RecordingListener()
        _start(replica, listener)
        await clock.advance_until(listener.ended.is_set, step=0.1)

        assert listener.codes == ["UNAVAILABLE"]
        assert cause in listener.messages[0]
        assert replica.lost_at is not None
        await replica.close()
