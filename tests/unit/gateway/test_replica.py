"""The connection to an executor, and what it does with factories that nobody foresaw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import grpc
import pytest

from cornserve.gateway.observe.replica_metrics import ReplicaTally
from cornserve.gateway.request.replica import Replica
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import EXECUTOR
from cornserve_executors.base.endpoint import open_endpoint


class Scripted:
    """ConnectionFactories each start with a chunk, and with the end whose code the request names."""

    def __init__(self) -> None:
        self.line = MessageConnection(EXECUTOR, self._take)

    def _take(self, command: pb.Command | None) -> None:
        if command is not None and command.HasField("start"):
            self.line.send(pb.Event(call=command.call, chunk=pb.OutputChunk(output="words", item=b"1")))
            code = int(command.start.request)
            self.line.send(pb.Event(call=command.call, end=pb.End(code=code)))  # type: ignore[arg-type]


@dataclass
class Hearing:
    """Writes down what it hears, and stumbles over the methods that it is told to stumble over."""

    stumbles: frozenset[str] = frozenset()
    codes: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def on_chunk(self, output: str, item: bytes) -> None:
        if "on_chunk" in self.stumbles:
            raise RuntimeError("stumbled")

    def on_input_lost(self, inputs: Sequence[int], message: str) -> None: ...

    def on_end(self, code: str, message: str, values: bytes) -> None:
        self.codes.append(code)
        self.ended.set()
        if "on_end" in self.stumbles:
            raise RuntimeError("stumbled")


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    server = grpc.aio.server()
    async with open_endpoint(server, {EXECUTOR.preamble: lambda: Scripted().line}, "127.0.0.1:0") as endpoint:
        replica = Replica(endpoint, ReplicaTally())
        yield replica
        await replica.close()
    await server.stop(grace=None)


async def _hear(replica: Replica, code: int, *stumbles: str) -> list[str]:
    hearing = Hearing(frozenset(stumbles))
    replica.start(pb.Command(start=pb.Start(request=str(code).encode())), hearing)
    async with asyncio.timeout(60):
        await hearing.ended.wait()
    return hearing.codes


async def test_a_code_that_is_not_known_is_an_internal_error_of_its_call_only(replica: Replica) -> None:
    assert await _hear(replica, 99) == ["INTERNAL"]
    assert await _hear(replica, pb.CODE_OK) == ["OK"]
    assert replica.lost_at is None


@pytest.mark.parametrize("method", ["on_chunk", "on_end"])
async def test_a_listener_that_raises_ends_its_call_only(replica: Replica, method: str) -> None:
    codes = await _hear(replica, pb.CODE_OK, method)

    assert codes[-1] == "INTERNAL"
    assert await _hear(replica, pb.CODE_OK) == ["OK"]
    assert replica.lost_at is None
    assert replica.in_flight == 0


async def test_the_loss_of_a_replica_reaches_those_who_listen_after_one_that_raises(replica: Replica) -> None:
    hearings = [Hearing(frozenset({"on_end"})), Hearing()]
    for hearing in hearings:
        replica.start(pb.Command(start=pb.Start(request=b"0")), hearing)
    await replica.close()

    assert [hearing.codes for hearing in hearings] == [["UNAVAILABLE"], ["UNAVAILABLE"]]


async def test_who_is_cancelled_while_others_hear_of_the_loss_of_a_replica_hears_nothing(replica: Replica) -> None:
    class Producer(Hearing):
        def on_end(self, code: str, message: str, values: bytes) -> None:
            super().on_end(code, message, values)
            replica.cancel(consumer_call)

    producer, consumer = Producer(), Hearing()
    replica.start(pb.Command(start=pb.Start(request=b"0")), producer)
    consumer_call = replica.start(pb.Command(start=pb.Start(request=b"0")), consumer)
    await replica.close()

    assert (producer.codes, consumer.codes) == (["UNAVAILABLE"], [])


async def _serve(answer: bytes) -> asyncio.Server:
    """Whatever else may listen where an executor was."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await reader.read()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""], ids=["a stranger", "one that says nothing"]
)
async def test_nothing_has_begun_where_no_executor_greets(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.gateway.request.replica.CONNECT_SECONDS", 0.1)
    async with await _serve(answer) as server:
        replica = Replica(f"127.0.0.1:{server.sockets[0].getsockname()[1] - 1}", ReplicaTally())

        assert await _hear(replica, pb.CODE_OK) == ["UNAVAILABLE"]

        assert replica.lost_at is not None
        await replica.close()
