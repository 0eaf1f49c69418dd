"""The consumer's end of the stream to one producing process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextvars import Context

import grpc

from cornserve.observe.discretion import outline
from cornserve.transport.intake import Intake, Offer
from cornserve.transport.outbox import Outbox
from cornserve.v1 import transfer_pb2 as pb
from cornserve.v1 import transfer_pb2_grpc

log = logging.getLogger(__name__)

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Notices a producer that hangs, or whose node died without a word.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),  # else it shares the connection of a former peer that is about to fail
]

RENEWALS = 4
"""As often does a consumer show in the time of a lease that it is alive."""


class Peer:
    """Everything that is subscribed at a process goes over one stream; what is held goes when it breaks."""

    def __init__(self, endpoint: str, lease_seconds: float, on_lost: Callable[[Peer], None]) -> None:
        self.endpoint = endpoint
        self.producer: pb.Producer | None = None
        """Who answers there, before anything is announced."""
        self._outbox: Outbox[pb.TransferCommand] = Outbox()
        self._intakes: dict[int, Intake] = {}
        self._numbers = itertools.count(1)
        self._lease_seconds = lease_seconds
        self._on_lost = on_lost
        # It outlives the request in which it may be made, whose name is not to stand in its logs.
        self._connection = asyncio.create_task(self._run(), name=f"transfer {endpoint}", context=Context())

    @property
    def host(self) -> str:
        return self.endpoint.rpartition(":")[0]

    def subscribe(self, intake: Intake) -> _RemoteLink:
        number = next(self._numbers)
        self._intakes[number] = intake
        source = intake.source
        self._outbox.put(
            pb.TransferCommand(
                subscribe=pb.Subscribe(
                    subscription=number,
                    request_id=source.request_id,
                    invocation=source.invocation,
                    attempt=source.attempt,
                    output=source.output,
                )
            )
        )
        return _RemoteLink(number, self._intakes, self._outbox)

    async def close(self) -> None:
        self._connection.cancel()
        await asyncio.gather(self._connection, return_exceptions=True)

    async def _run(self) -> None:
        reason = "this process ends"
        try:
            async with grpc.aio.insecure_channel(self.endpoint, options=_CHANNEL_OPTIONS) as channel:
                stream = transfer_pb2_grpc.TransferStub(channel).Exchange()
                writing = [asyncio.create_task(work) for work in (self._write(stream), self._renew())]
                try:
                    await self._read(stream)
                    reason = "its process has ended the connection"
                finally:
                    for task in writing:
                        task.cancel()
                    await asyncio.gather(*writing, return_exceptions=True)
        except grpc.aio.AioRpcError as error:
            reason = f"the connection to its process broke: {error.details() or error.code().name}"
        except Exception as error:
            log.error("cannot take what the producer at %s sent:\n%s", self.endpoint, outline(error))
            reason = f"cannot take what its process sent: {error!r}"
        finally:
            self._on_lost(self)
            for intake in self._intakes.values():
                intake.lose(reason)

    async def _read(self, stream: grpc.aio.StreamStreamCall[pb.TransferRequest, pb.TransferResponse]) -> None:
        async for frame in stream:
            for event in frame.events:
                self._take(event)

    def _take(self, event: pb.TransferEvent) -> None:
        match event.WhichOneof("kind"):
            case "producer":
                self.producer = event.producer
            case "announcement" if intake := self._intakes.get(event.announcement.subscription):
                intake.offer(_offer(event.announcement))
            case "end" if intake := self._intakes.get(event.end.subscription):
                intake.complete()
            case "lost" if intake := self._intakes.get(event.lost.subscription):
                intake.lose(event.lost.reason)

    async def _write(self, stream: grpc.aio.StreamStreamCall[pb.TransferRequest, pb.TransferResponse]) -> None:
        try:
            while commands := await self._outbox.next():
                await stream.write(pb.TransferRequest(commands=commands))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # A stream that breaks is the reader's to report.

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / RENEWALS)
            self._outbox.put(pb.TransferCommand(renew=pb.Renew()))


class _RemoteLink:
    def __init__(self, number: int, intakes: dict[int, Intake], outbox: Outbox[pb.TransferCommand]) -> None:
        self._number = number
        self._intakes = intakes
        self._outbox = outbox

    def release(self, chunk: int) -> None:
        self._outbox.put(pb.TransferCommand(release=pb.ReleaseChunk(subscription=self._number, chunk=chunk)))

    def unsubscribe(self) -> None:
        if self._intakes.pop(self._number, None) is not None:
            self._outbox.put(pb.TransferCommand(unsubscribe=pb.Unsubscribe(subscription=self._number)))


def _offer(announcement: pb.Announcement) -> Offer:
    return Offer(
        announcement.chunk,
        announcement.dtype,
        tuple(announcement.shape),
        announcement.metadata,
        announcement.offset,
        announcement.nbytes,
        announcement.generation,
        announcement.arrived_us,
        announcement.published_us,
    )
