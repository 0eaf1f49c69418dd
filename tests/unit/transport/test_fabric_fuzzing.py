"""Random well-formed messages between the two ends of a library's connection. They affect their own connection only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from cornserve.transport import LostError
from cornserve.transport.pull.fabric import MAX_MESSAGE_BYTES, Fabric, preamble, with_checksum
from cornserve.transport.pull.fabric_puller import FabricPuller
from cornserve.transport.pull.selection import FABRICS
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import Codec
from cornserve.wire.connection import MessageConnection
from cornserve.wire.listener import ConnectionListener
from tests.chaos import form
from tests.credentials import CREDENTIALS
from tests.pull_sources import pull_source, pull_target
from tests.unit.transport.conftest import needs_extra
from tests.unit.transport.test_fuzzing import FUZZED, SEQUENCES
from tests.unit.transport.test_transport import DATA

CAPABILITY = bytes(16)

Scenario = Callable[["FuzzedPair"], Awaitable[None]]


class FuzzedPair:
    """A puller, its library with an address, and the endpoint at which one tensor can be pulled."""

    def __init__(self, puller: FabricPuller, fabric: Fabric, address: bytes, endpoint: str) -> None:
        self.puller = puller
        self.fabric = fabric
        self.address = with_checksum(address)
        self.endpoint = endpoint

    async def pull(self, endpoint: str) -> bytes:
        into = bytearray(len(DATA))
        await self.puller.pull(endpoint, CAPABILITY, pull_target(into))
        return bytes(into)


@pytest.fixture(scope="module", params=list(FABRICS))
def pair(request: pytest.FixtureRequest) -> Iterator[Callable[[Scenario], None]]:
    """Returns a function that runs a scenario."""
    name = needs_extra(request.param)
    with asyncio.Runner() as runner:
        fabric = runner.run(FABRICS[name]())
        puller = FabricPuller(fabric, CREDENTIALS)
        source = pull_source(DATA)
        listener = ConnectionListener(
            puller.serve(lambda capability: source if capability == CAPABILITY else None), CREDENTIALS
        )
        address, endpoint = runner.run(fabric.link().open()), runner.run(_call(listener.listen, "127.0.0.1:0"))
        fuzzed = FuzzedPair(puller, fabric, address, endpoint)
        yield lambda scenario: runner.run(_call(scenario, fuzzed))
        runner.run(listener.close())
        runner.run(puller.close())


async def _call(function: Callable[[Any], Awaitable[Any]], argument: Any) -> Any:
    return await function(argument)


BYTES = st.sampled_from([b"", b"\0", bytes(16), bytes(200), b"x" * 70_000])
ADDRESS = "address"
"""Stands for the message with a valid address."""

command = st.one_of(
    st.just(ADDRESS),
    BYTES.map(lambda address: pb.FabricCommand(address=address)),
    BYTES.map(lambda address: pb.FabricCommand(address=with_checksum(address))),
    st.builds(
        lambda capability, tag: pb.FabricCommand(pull=pb.FabricPull(capability=capability, tag=tag)),
        BYTES,
        st.sampled_from([0, 7, 2**64 - 1]),
    ),
    st.booleans().map(lambda copied: pb.FabricCommand(copied=copied)),
    st.just(pb.FabricCommand.FromString(b"\xfa\x3f\x04junk")),
)
event = st.one_of(
    st.just(ADDRESS),
    BYTES.map(lambda address: pb.FabricEvent(address=address)),
    BYTES.map(lambda address: pb.FabricEvent(address=with_checksum(address))),
    BYTES.map(lambda offer: pb.FabricEvent(offer=offer)),
    st.booleans().map(lambda is_current: pb.FabricEvent(is_current=is_current)),
    st.just(pb.FabricEvent.FromString(b"\xfa\x3f\x04junk")),
)


@pytest.mark.chaos(fault="sequences of random commands to the sender of a library", count=SEQUENCES)
@seed(form.seed())
@FUZZED
@given(commands=st.lists(command, min_size=1, max_size=10), is_patient=st.booleans())
def test_any_commands_of_a_consumer_affect_no_other(
    pair: Callable[[Scenario], None], commands: Sequence[pb.FabricCommand | str], is_patient: bool
) -> None:
    async def check(pair: FuzzedPair) -> None:
        responded = asyncio.Event()
        codec: Codec[pb.FabricCommand, pb.FabricEvent] = Codec(
            preamble(pair.fabric), pb.FabricEvent, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
        )
        hostile = MessageConnection(codec, lambda event: responded.set())
        await hostile.connect(pair.endpoint, CREDENTIALS)
        for command in commands:
            responded.clear()
            hostile.send(pb.FabricCommand(address=pair.address) if isinstance(command, str) else command)
            if is_patient:  # Without a response, the sender has closed the connection, or waits for a copy.
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await responded.wait()

        assert await pair.pull(pair.endpoint) == DATA

        hostile.abort("the test has ended")
        await hostile.wait_closed()

    pair(check)


@pytest.mark.chaos(fault="sequences of random events to the receiver of a library", count=SEQUENCES)
@seed(form.seed())
@FUZZED
@given(events=st.lists(event, max_size=6))
def test_any_events_of_a_producer_end_the_pull(
    pair: Callable[[Scenario], None], events: Sequence[pb.FabricEvent | str]
) -> None:
    async def check(pair: FuzzedPair) -> None:
        codec: Codec[pb.FabricEvent, pb.FabricCommand] = Codec(
            preamble(pair.fabric), pb.FabricCommand, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
        )

        def create() -> MessageConnection[pb.FabricEvent, pb.FabricCommand]:
            remaining = list(events)

            def respond(command: pb.FabricCommand | None) -> None:
                if not remaining or command is None:
                    connection.abort("the test has ended")
                    return
                event = remaining.pop(0)
                connection.send(pb.FabricEvent(address=pair.address) if isinstance(event, str) else event)

            connection = MessageConnection(codec, respond)
            return connection

        listener = ConnectionListener({codec.preamble: create}, CREDENTIALS)
        endpoint = await listener.listen("127.0.0.1:0")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cornserve.transport.pull.fabric_ends.RESPONSE_SECONDS", 0.3)
            with pytest.raises((OSError, LostError)):  # no events are those of a copy: the library sends nothing
                await pair.pull(endpoint)
        pair.puller.disconnect(endpoint)
        await listener.close()
        assert await pair.pull(pair.endpoint) == DATA

    pair(check)
