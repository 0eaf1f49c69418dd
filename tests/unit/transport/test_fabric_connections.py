"""Connections over which a library for RDMA pulls tensors: rules of the protocol, and sizes of messages."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cornserve.instance_secret import InstanceSecret
from cornserve.pull_protocol import PullProtocol
from cornserve.transport import LostError
from cornserve.transport.pull.fabric import MAX_MESSAGE_BYTES, Fabric, preamble, with_checksum
from cornserve.transport.pull.fabric_puller import FabricPuller
from cornserve.transport.pull.puller import PullSource
from cornserve.transport.pull.selection import FABRICS, RETRY_SECONDS, PullerSelection
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import Codec
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.handshake import HandshakeError
from cornserve.wire.listener import ConnectionListener
from tests.credentials import CREDENTIALS
from tests.loop_clock import LoopClock
from tests.pull_sources import pull_source, pull_target
from tests.unit.transport.conftest import MIB, needs_extra
from tests.unit.transport.test_fabrics import link_type
from tests.unit.transport.test_transport import DATA
from tests.waiting import until

CAPABILITY = bytes(16)


class FabricServer:
    """A listener at which tensors can be pulled by a library, and connections to it that send any messages."""

    def __init__(self, fabric: Fabric, address: bytes) -> None:
        self.protocol = fabric.protocol
        self.preamble = preamble(fabric)
        self.address = pb.FabricCommand(address=with_checksum(address))
        self.puller = FabricPuller(fabric, CREDENTIALS)
        self.source: PullSource | None = None
        self.listener = ConnectionListener(self.puller.serve(lambda _: self.source), CREDENTIALS)
        self.events: list[pb.FabricEvent] = []
        self.endpoint = ""

    async def connect(
        self, credentials: ConnectionCredentials = CREDENTIALS
    ) -> MessageConnection[pb.FabricCommand, pb.FabricEvent]:
        codec: Codec[pb.FabricCommand, pb.FabricEvent] = Codec(
            self.preamble, pb.FabricEvent, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
        )
        connection = MessageConnection(codec, self._on_event)
        await connection.connect(self.endpoint, credentials)
        return connection

    def _on_event(self, event: pb.FabricEvent | None) -> None:
        if event is not None:
            self.events.append(event)


@pytest.fixture(params=list(FABRICS))
async def server(request: pytest.FixtureRequest) -> AsyncIterator[FabricServer]:
    fabric = await FABRICS[needs_extra(request.param)]()
    server = FabricServer(fabric, await fabric.link().open())
    server.endpoint = await server.listener.listen("127.0.0.1:0")
    yield server
    await server.listener.close()
    await server.puller.close()


PULL = pb.FabricCommand(pull=pb.FabricPull(capability=CAPABILITY, tag=7))


@pytest.mark.parametrize(
    "commands",
    [
        [PULL],
        [pb.FabricCommand(copied=True)],
        ["address", "address"],
        ["address", pb.FabricCommand(copied=True)],
        ["address", pb.FabricCommand(pull=pb.FabricPull(capability=b"short"))],
        ["address", PULL, PULL],
        [pb.FabricCommand(address=b"")],
        [pb.FabricCommand(address=bytes(200))],
        [pb.FabricCommand(address=with_checksum(bytes(200)))],
    ],
    ids=lambda commands: ", ".join(getattr(command, "WhichOneof", lambda _: "address")("kind") for command in commands),
)
async def test_a_consumer_that_breaks_the_protocol_is_disconnected(
    server: FabricServer, commands: list[pb.FabricCommand | str]
) -> None:
    server.source = pull_source(DATA)
    connection = await server.connect()
    for number, command in enumerate(commands, start=1):
        connection.send(server.address if isinstance(command, str) else command)
        if number < len(commands):
            await until(lambda number=number: len(server.events) == number)  # type: ignore[misc]

    async with asyncio.timeout(60):
        await connection.wait_closed()
    assert not any(event.WhichOneof("kind") == "is_current" for event in server.events)


async def test_a_process_without_the_secret_cannot_send_an_address(server: FabricServer) -> None:
    stranger = ConnectionCredentials(InstanceSecret(bytes(32)))

    with pytest.raises(HandshakeError):
        await server.connect(stranger)


async def test_a_capability_that_no_tensor_has_gets_nothing(server: FabricServer) -> None:
    with pytest.raises(LostError, match="has freed it"):
        await server.puller.pull(server.endpoint, CAPABILITY, pull_target(bytearray(len(DATA))))


async def test_a_tensor_that_is_freed_during_a_pull_is_lost_by_any_library(server: FabricServer) -> None:
    server.source = pull_source(DATA, lambda: False)

    with pytest.raises(LostError, match="was freed during the pull"):
        await server.puller.pull(server.endpoint, CAPABILITY, pull_target(bytearray(len(DATA))))


async def test_each_connection_of_a_burst_closes_the_one_that_has_not_pulled_for_longest(
    server: FabricServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.transport.pull.fabric_puller.MAX_SERVED", 2)
    has_ended = asyncio.Event()

    async def wait_closed(link: Any) -> None:
        await has_ended.wait()

    monkeypatch.setattr(link_type(server.protocol), "wait_closed", wait_closed)
    connections = []
    try:
        for number in range(1, 3):
            connections.append(await server.connect())
            connections[-1].send(server.address)
            await until(lambda number=number: len(server.events) == number)  # type: ignore[misc]

        connections += [await server.connect() for _ in range(4)]

        await until(lambda: sum(not connection.closed.is_set() for connection in connections) == 2)
    finally:
        has_ended.set()


async def test_failures_with_producers_that_have_ended_are_forgotten(server: FabricServer, clock: LoopClock) -> None:
    class Endpoint(str):
        """Can have weak references."""

    pullers = PullerSelection(PullProtocol.TCP, CREDENTIALS)
    pullers.record_failure("10.0.0.1:7000", server.puller, OSError("the first failure is logged"))
    endpoint = Endpoint("10.0.0.2:7000")
    pullers.record_failure(endpoint, server.puller, OSError("further ones are not"))
    reference = weakref.ref(endpoint)
    del endpoint

    clock.advance(RETRY_SECONDS)
    pullers.record_failure("10.0.0.3:7000", server.puller, OSError("further ones are not"))

    assert reference() is None


@pytest.mark.parametrize("nbytes", [1000, 1 << 20])
@pytest.mark.parametrize("surplus", [-1, 1])
async def test_a_message_of_another_size_than_the_tensor_is_an_error(
    server: FabricServer, nbytes: int, surplus: int
) -> None:
    server.source = pull_source(bytes(nbytes + surplus))
    into = bytearray(b"x" * nbytes)

    with pytest.raises(OSError, match=f"sent {nbytes + surplus} bytes of a tensor that has {nbytes} bytes"):
        await server.puller.pull(server.endpoint, CAPABILITY, pull_target(into))

    assert into == b"x" * nbytes


async def test_many_sizes_arrive_complete(server: FabricServer) -> None:
    for nbytes in (1, 8191, 8192, 65_537, MIB, 5 * MIB + 1):
        data = bytes(range(256)) * (nbytes // 256 + 1)
        server.source = pull_source(memoryview(data)[:nbytes])
        into = bytearray(nbytes)

        await server.puller.pull(server.endpoint, CAPABILITY, pull_target(into))

        assert into == data[:nbytes]
