"""The two ends of a connection over which tensors are pulled with a library for RDMA."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final

from cornserve.concurrency import run_unless
from cornserve.transport.memory.refcounted_blocks import CAPABILITY_BYTES
from cornserve.transport.pull.fabric import (
    MAX_MESSAGE_BYTES,
    Fabric,
    FabricLink,
    check_address,
    preamble,
    with_checksum,
)
from cornserve.transport.pull.held_source import HeldSource
from cornserve.transport.pull.puller import FindSource
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import Codec, ProtocolError
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials

RESPONSE_SECONDS: Final = 15.0
MIN_BYTES_PER_SECOND: Final = 20e6


def pull_seconds(nbytes: int) -> float:
    """Returns the time after which a pull fails."""
    return RESPONSE_SECONDS + nbytes / MIN_BYTES_PER_SECOND


class FabricSender:
    """The producer's end of a connection: offers the tensors that a consumer requests, one after the other."""

    def __init__(
        self,
        fabric: Fabric,
        codec: Codec[pb.FabricEvent, pb.FabricCommand],
        find: FindSource,
        on_pull: Callable[[FabricSender], None],
    ) -> None:
        self._fabric = fabric
        self._find = find
        self._on_pull = on_pull
        self._link: FabricLink | None = None
        self._source: HeldSource | None = None
        """The tensor that is offered. The library reads its memory until the copy is complete, or the link closed."""
        self._response: asyncio.Task[None] | None = None
        self.connection = MessageConnection(codec, self._on_command)
        self.closing = asyncio.create_task(self._close(), context=Context())
        """Ends when the connection is closed, and the library does not read memory for it any more."""

    def _on_command(self, command: pb.FabricCommand | None) -> None:
        if command is None:
            self.connection.abort("the consumer has closed the connection")
            return
        if self._response is not None and not self._response.done():
            raise ProtocolError("it sent a command before the response to the last one")
        self._response = asyncio.create_task(self._respond(self._response_to(command)), context=Context())

    def _response_to(self, command: pb.FabricCommand) -> Coroutine[Any, Any, pb.FabricEvent]:
        """Raises `ProtocolError` if the command is not allowed now."""
        match command.WhichOneof("kind"):
            case "address" if self._link is None:
                return self._connect(command.address)
            case "pull" if self._link is not None and self._source is None:
                if len(command.pull.capability) != CAPABILITY_BYTES:
                    raise ProtocolError(f"a capability has {len(command.pull.capability)} bytes")
                return self._offer(self._link, command.pull)
            case "copied" if self._link is not None and self._source is not None:
                return self._withdraw(self._link, self._source)
        raise ProtocolError("it sent a command that is not allowed in this place")

    async def _respond(self, work: Coroutine[Any, Any, pb.FabricEvent]) -> None:
        try:
            self.connection.send(await work)
        except OSError as error:
            self.connection.refuse(f"{self._fabric.protocol} failed: {error}")

    async def _connect(self, address: bytes) -> pb.FabricEvent:
        peer = check_address(address)
        self._link = self._fabric.link()
        address = await self._link.open()
        await self._link.connect(peer)
        return pb.FabricEvent(address=with_checksum(address))

    async def _offer(self, link: FabricLink, pull: pb.FabricPull) -> pb.FabricEvent:
        self._on_pull(self)
        found = self._find(pull.capability)
        if found is None:
            return pb.FabricEvent(is_current=False)
        self._source = source = HeldSource(found, self._end_copy)
        return pb.FabricEvent(offer=await link.offer(source.view, pull.tag))

    def _end_copy(self) -> None:
        self.connection.abort("the consumer does not receive the rest of a tensor that was freed")

    async def _withdraw(self, link: FabricLink, source: HeldSource) -> pb.FabricEvent:
        await link.withdraw()
        is_current = source.is_current()
        self._source = None
        source.release()
        return pb.FabricEvent(is_current=is_current)

    async def _close(self) -> None:
        await self.connection.wait_closed()
        if self._response is not None:
            self._response.cancel()
            await asyncio.gather(self._response, return_exceptions=True)
        if self._link is not None:
            self._link.close()
            await self._link.wait_closed()
        if self._source is not None:
            self._source.release()


class FabricReceiver:
    """The consumer's end of a connection: pulls one tensor at a time."""

    def __init__(self, fabric: Fabric) -> None:
        codec: Codec[pb.FabricCommand, pb.FabricEvent] = Codec(
            preamble(fabric), pb.FabricEvent, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
        )
        self._fabric = fabric
        self._connection = MessageConnection(codec, self._on_event)
        self._response: asyncio.Future[pb.FabricEvent] | None = None
        self._link: FabricLink | None = None

    @classmethod
    async def connect(cls, fabric: Fabric, endpoint: str, credentials: ConnectionCredentials) -> FabricReceiver:
        """Raises `OSError` if the other process does not pull by this library."""
        receiver = cls(fabric)
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                await receiver._connection.connect(endpoint, credentials)
                link = receiver._link = fabric.link()
                address = with_checksum(await link.open())
                event = await receiver._exchange(pb.FabricCommand(address=address), "address")
                await link.connect(check_address(event.address))
        except BaseException:
            receiver.abort()
            raise
        return receiver

    @property
    def is_closed(self) -> bool:
        return self._connection.closed.is_set()

    async def receive(self, capability: bytes, into: memoryview) -> str:
        """Returns why the tensor is lost, or "". Raises `OSError` if the library or the connection fails."""
        assert self._link is not None, "the receiver is connected"
        tag = secrets.randbits(64)
        pull = pb.FabricPull(capability=capability, tag=tag)
        event = await self._exchange(pb.FabricCommand(pull=pull), "offer", "is_current")
        if event.WhichOneof("kind") == "is_current":
            return "its producer has freed it"
        if not await run_unless(self._connection.closed, self._link.fetch(event.offer, into, tag)):
            raise OSError(await self._connection.wait_closed())
        event = await self._exchange(pb.FabricCommand(copied=True), "is_current")
        return "" if event.is_current else "its memory was freed during the pull"

    def abort(self) -> None:
        self._connection.abort("the pull has ended")
        if self._link is not None:
            self._link.close()

    async def _exchange(self, command: pb.FabricCommand, *kinds: str) -> pb.FabricEvent:
        """Returns the response, which is of one of the kinds."""
        self._response = asyncio.get_running_loop().create_future()
        self._connection.send(command)
        if not await run_unless(self._connection.closed, self._response):
            raise OSError(await self._connection.wait_closed())
        event = self._response.result()
        if event.WhichOneof("kind") not in kinds:
            raise OSError(f"the producer sent an event of the kind {event.WhichOneof('kind')!r}")
        return event

    def _on_event(self, event: pb.FabricEvent | None) -> None:
        if event is None:
            self._connection.abort("the producer has closed the connection")
        elif self._response is None or self._response.done():
            raise ProtocolError("it sent an event that is not a response")
        else:
            self._response.set_result(event)
