"""Pulls tensors with a library for RDMA networks (a *fabric*).

Each pair of connected processes has connections of the kind that the other protocols use, with the handshake. Messages
over them name the capability of a tensor, so that the producer lets the library copy this tensor only, and report
whether the memory still belonged to the tensor when the copy was complete.
"""

from __future__ import annotations

import asyncio
import secrets
import zlib
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, Protocol

from cornserve.concurrency import run_unless
from cornserve.pull_protocol import PullProtocol
from cornserve.transport.errors import LostError
from cornserve.transport.memory.refcounted_blocks import CAPABILITY_BYTES
from cornserve.transport.pull.pool import ConnectionPools
from cornserve.transport.pull.puller import FindSource, PullSource
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import Codec, ProtocolError
from cornserve.wire.connection import MessageConnection
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionFactories

MAX_MESSAGE_BYTES: Final = 256 << 10
"""Limit for an address or an offer of the library. Both have some hundred bytes per network device and step."""

MAX_SERVED: Final = 1024
"""Connections over which a process serves. The one that has not pulled for longest is closed for a further one."""

RESPONSE_SECONDS: Final = 15.0
MIN_BYTES_PER_SECOND: Final = 20e6
"""A pull fails after `RESPONSE_SECONDS`, and the time that the tensor takes at this rate."""

CANCEL_SECONDS: Final = 1.0
"""Time that a cancelled pull has to complete, before its connection ends. A new one takes longer than most copies."""


class FabricLink(Protocol):
    """The library's connection to one other process."""

    async def open(self) -> bytes:
        """Returns the address of the link, to which the other process connects. Raises `OSError`."""

    async def connect(self, address: bytes) -> None:
        """Connects to the link with the address. Raises `OSError` if no process can have the address."""

    async def offer(self, source: memoryview, tag: int) -> bytes:
        """Lets the other process copy the memory until `withdraw`. Returns what it needs for this."""

    async def withdraw(self) -> None:
        """Ends the offer. The other process has copied the memory."""

    async def fetch(self, offer: bytes, into: memoryview, tag: int) -> None:
        """Fills `into`. Nothing writes to it after the call, even if the call fails. Raises `OSError`."""

    def close(self) -> None:
        """Ends offers and fetches in the background. They fail."""

    async def wait_closed(self) -> None:
        """Waits after `close` until the library does not access memory for the link."""


class Fabric(Protocol):
    protocol: PullProtocol
    has_rdma: bool
    """Whether the library can use a network device with RDMA on this machine."""

    def link(self) -> FabricLink: ...

    async def close(self) -> None: ...


class FabricPuller:
    """Args:
    fabric: the library. The puller closes it.
    """

    def __init__(self, fabric: Fabric, credentials: ConnectionCredentials) -> None:
        self.protocol = fabric.protocol
        self._fabric = fabric
        self._credentials = credentials
        self._pools = ConnectionPools(self._connect)
        self._senders: dict[FabricSender, None] = {}
        """The senders with an open connection. The one that has not pulled for longest is the first."""
        self._closing: set[asyncio.Task[None]] = set()
        """Ends of senders."""

    def serve(self, find: FindSource) -> ConnectionFactories:
        codec: Codec[pb.FabricEvent, pb.FabricCommand] = Codec(
            preamble(self.protocol), pb.FabricCommand, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
        )

        def create() -> MessageConnection[pb.FabricEvent, pb.FabricCommand]:
            sender = FabricSender(self._fabric, codec, find, self._record_use)
            self._closing.add(sender.closing)
            sender.closing.add_done_callback(self._closing.discard)
            sender.closing.add_done_callback(lambda _: self._senders.pop(sender, None))
            self._record_use(sender)
            if len(self._senders) > MAX_SERVED:
                oldest = next(iter(self._senders))
                del self._senders[oldest]
                oldest.connection.abort("too many consumers pull from this process")
            return sender.connection

        return {codec.preamble: create}

    async def pull(self, endpoint: str, capability: bytes, into: memoryview) -> None:
        is_cancelled = False
        try:
            async with self._pools.connection(endpoint) as receiver:
                receiving = asyncio.create_task(receiver.receive(capability, into))
                is_cancelled = await _wait_ended(receiving)
                problem = receiving.result()
        finally:
            if is_cancelled:
                raise asyncio.CancelledError
        if problem:
            raise LostError(problem)

    def disconnect(self, endpoint: str) -> None:
        self._pools.disconnect(endpoint)

    async def close(self) -> None:
        await self._pools.close()
        for sender in self._senders:
            sender.connection.abort("this process ends")
        await asyncio.gather(*self._closing)
        await self._fabric.close()

    async def _connect(self, endpoint: str) -> FabricReceiver:
        return await FabricReceiver.connect(self._fabric, endpoint, self._credentials)

    def _record_use(self, sender: FabricSender) -> None:
        self._senders.pop(sender, None)
        self._senders[sender] = None


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
        self._source: PullSource | None = None
        """The tensor that is offered."""
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
        source = self._find(pull.capability)
        if source is None:
            return pb.FabricEvent(is_current=False)
        self._source = source
        return pb.FabricEvent(offer=await link.offer(source.view, pull.tag))

    async def _withdraw(self, link: FabricLink, source: PullSource) -> pb.FabricEvent:
        await link.withdraw()
        self._source = None
        return pb.FabricEvent(is_current=source.is_current())

    async def _close(self) -> None:
        await self.connection.wait_closed()
        if self._response is not None:
            self._response.cancel()
            await asyncio.gather(self._response, return_exceptions=True)
        if self._link is not None:
            self._link.close()
            await self._link.wait_closed()


class FabricReceiver:
    """The consumer's end of a connection: pulls one tensor at a time."""

    def __init__(self, fabric: Fabric) -> None:
        codec: Codec[pb.FabricCommand, pb.FabricEvent] = Codec(
            preamble(fabric.protocol), pb.FabricEvent, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
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
        async with asyncio.timeout(RESPONSE_SECONDS + into.nbytes / MIN_BYTES_PER_SECOND):
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


async def _wait_ended(work: asyncio.Task[Any]) -> bool:
    """Waits until the task has ended, and returns whether the caller was cancelled meanwhile.

    The task of a cancelled caller may complete, and is cancelled if this takes longer than `CANCEL_SECONDS`.
    """
    is_cancelled = False
    while not work.done():
        try:
            _, late = await asyncio.wait((work,), timeout=CANCEL_SECONDS if is_cancelled else None)
            for task in late:
                task.cancel()
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled


def preamble(protocol: PullProtocol) -> bytes:
    return f"cornserve.v1.Pull.{protocol}/1\n".encode()


def with_checksum(address: bytes) -> bytes:
    """Returns the address of a library as messages contain it."""
    return zlib.crc32(address).to_bytes(4) + address


def check_address(content: bytes) -> bytes:
    """Returns the address that a message contains. Raises `OSError` if it is damaged: libraries crash in this case."""
    address = content[4:]
    if not address or with_checksum(address) != content:
        raise OSError("the other end sent a damaged address")
    return address
