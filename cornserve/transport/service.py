"""The producer's end of the streams over which consumers subscribe."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc

from cornserve.observe.discretion import outline
from cornserve.transport.announcement import Tensor
from cornserve.transport.board import Board, Name
from cornserve.transport.meter import Meter
from cornserve.transport.outbox import Outbox
from cornserve.transport.publication import Subscription
from cornserve.v1 import transfer_pb2 as pb
from cornserve.v1 import transfer_pb2_grpc

log = logging.getLogger(__name__)


class TransferService(transfer_pb2_grpc.TransferServicer):
    """Args:
    producer: who we are; it is the first that a consumer hears.
    lease_seconds: how long a consumer may be silent.
    """

    def __init__(self, board: Board, producer: pb.Producer, lease_seconds: float, meter: Meter) -> None:
        self._board = board
        self._producer = producer
        self._lease_seconds = lease_seconds
        self._meter = meter

    async def Exchange(  # noqa: N802 - gRPC's spelling
        self,
        request_iterator: AsyncIterator[pb.TransferRequest],
        context: grpc.aio.ServicerContext[pb.TransferRequest, pb.TransferResponse],
    ) -> AsyncIterator[pb.TransferResponse]:
        outbox: Outbox[pb.TransferEvent] = Outbox()
        outbox.put(pb.TransferEvent(producer=self._producer))
        stream = _Stream(self._board, outbox)
        reader = asyncio.create_task(self._read(request_iterator, stream, outbox))
        try:
            while events := await outbox.next():
                yield pb.TransferResponse(events=events)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            stream.close()

    async def _read(
        self, frames: AsyncIterator[pb.TransferRequest], stream: _Stream, outbox: Outbox[pb.TransferEvent]
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._lease_seconds) as lease:
                async for frame in frames:
                    lease.reschedule(loop.time() + self._lease_seconds)
                    for command in frame.commands:
                        stream.take(command)
        except TimeoutError:
            self._meter.expired_leases += 1
            log.warning("a consumer has been silent for %g s: its leases are over", self._lease_seconds)
        except Exception as error:
            log.error("cannot take what a consumer sent:\n%s", outline(error))
        finally:
            stream.close()  # at once: nobody may be there to take what the outbox still has
            outbox.close()


class _Stream:
    """What one consuming process has subscribed to."""

    def __init__(self, board: Board, outbox: Outbox[pb.TransferEvent]) -> None:
        self._board = board
        self._outbox = outbox
        self._subscriptions: dict[int, tuple[Name, Subscription]] = {}

    def take(self, command: pb.TransferCommand) -> None:
        match command.WhichOneof("kind"):
            case "subscribe":
                wanted = command.subscribe
                name = Name(wanted.request_id, wanted.invocation, wanted.attempt)
                subscription = Subscription(_Remote(wanted.subscription, self._outbox))
                self._subscriptions[wanted.subscription] = name, subscription
                self._board.subscribe(name, wanted.output, subscription)
            case "release" if command.release.subscription in self._subscriptions:
                _, subscription = self._subscriptions[command.release.subscription]
                subscription.release(command.release.chunk)
            case "unsubscribe" if command.unsubscribe.subscription in self._subscriptions:
                self._board.unsubscribe(*self._subscriptions.pop(command.unsubscribe.subscription))

    def close(self) -> None:
        while self._subscriptions:
            _, subscribed = self._subscriptions.popitem()
            self._board.unsubscribe(*subscribed)


class _Remote:
    """A consumer at the other end."""

    def __init__(self, subscription: int, outbox: Outbox[pb.TransferEvent]) -> None:
        self._subscription = subscription
        self._outbox = outbox

    def on_tensor(self, chunk: int, tensor: Tensor) -> None:
        extent = tensor.block.extent
        announcement = pb.Announcement(
            subscription=self._subscription,
            chunk=chunk,
            dtype=tensor.dtype,
            shape=tensor.shape,
            metadata=tensor.metadata,
            offset=extent.offset,
            nbytes=extent.nbytes,
            generation=extent.generation,
            arrived_us=tensor.arrived_us,
            published_us=tensor.published_us,
        )
        self._outbox.put(pb.TransferEvent(announcement=announcement))

    def on_end(self) -> None:
        self._outbox.put(pb.TransferEvent(end=pb.StreamEnd(subscription=self._subscription)))

    def on_lost(self, reason: str) -> None:
        self._outbox.put(pb.TransferEvent(lost=pb.Lost(subscription=self._subscription, reason=reason)))
