"""The connection to an executor, and what it does with answers that nobody foresaw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from cornserve.gateway.observe.replica_metrics import ReplicaTally
from cornserve.gateway.request.replica import Replica
from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc


class Scripted(executor_pb2_grpc.ExecutorServicer):
    """Answers each start with a chunk, and with the end whose code the request names."""

    async def Invoke(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.InvokeResponse]:  # noqa: N802
        async for frame in request_iterator:
            for command in frame.commands:
                if command.HasField("start"):
                    chunk = pb.OutputChunk(output="words", item=b"1")
                    end = pb.End(code=int(command.start.request))  # type: ignore[arg-type]
                    yield pb.InvokeResponse(events=[pb.Event(call=command.call, chunk=chunk)])
                    yield pb.InvokeResponse(events=[pb.Event(call=command.call, end=end)])

    async def Observe(self, request: Any, context: Any) -> AsyncIterator[pb.Observation]:  # noqa: N802
        yield pb.Observation()


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
    executor_pb2_grpc.add_ExecutorServicer_to_server(Scripted(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    replica = Replica(f"127.0.0.1:{port}", ReplicaTally())
    yield replica
    await replica.close()
    await server.stop(grace=None)


async def _hear(replica: Replica, code: int, *stumbles: str) -> list[str]:
    hearing = Hearing(frozenset(stumbles))
    replica.start(pb.Start(request=str(code).encode()), hearing)
    async with asyncio.timeout(10):
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
        replica.start(pb.Start(request=b"0"), hearing)
    await replica.close()

    assert [hearing.codes for hearing in hearings] == [["UNAVAILABLE"], ["UNAVAILABLE"]]
