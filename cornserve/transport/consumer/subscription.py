"""Subscriptions of this process to outputs of a producing process."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from cornserve.transport.consumer.announcements import check_producer, check_tensor
from cornserve.transport.errors import LostError
from cornserve.transport.tensor import TensorId
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import ProtocolError

MAX_ANNOUNCEMENTS: Final = 1 << 17
"""The limit for unread tensors of one subscription. Each occupies a page, so these are at least 512 MiB."""


class ProducerSubscriptions:
    """The subscriptions at one producing process, which may be this process.

    Args:
        send: sends a command to the producer. It must not block.
        local: describes this process, if it is the producing process.
    """

    def __init__(self, send: Callable[[pb.TransferCommand], None], local: pb.Producer | None = None) -> None:
        self.send = send
        self.producer = local
        """Describes the producing process; None until its first event."""
        self._subscriptions: dict[int, Subscription] = {}
        self._numbers = itertools.count(1)

    def subscribe(self, tensor_id: TensorId, on_recall: Callable[[], None]) -> Subscription:
        number = next(self._numbers)
        subscription = self._subscriptions[number] = Subscription(self, number, tensor_id, on_recall)
        tensor = pb.Subscribe(
            request_id=tensor_id.request_id,
            invocation=tensor_id.invocation,
            attempt=tensor_id.attempt,
            output=tensor_id.output,
        )
        self.send(pb.TransferCommand(subscription=number, subscribe=tensor))
        return subscription

    def unsubscribe(self, number: int) -> None:
        del self._subscriptions[number]
        self.send(pb.TransferCommand(subscription=number, unsubscribe=True))

    def apply_event(self, event: pb.TransferEvent) -> None:
        """Raises `ProtocolError` if the producer does not describe itself first, or announces an invalid tensor."""
        if (kind := event.WhichOneof("kind")) == "producer":
            if self.producer is not None:
                raise ProtocolError("the producer has described itself twice")
            check_producer(event.producer)
            self.producer = event.producer
        elif self.producer is None and kind != "heartbeat":
            raise ProtocolError("the producer has not described itself")
        elif subscription := self._subscriptions.get(event.subscription):
            subscription.apply_event(event)

    def lose_all(self, reason: str) -> None:
        for subscription in self._subscriptions.values():
            subscription.lose(reason)


class Subscription:
    """A subscription to one output. Queues its announcements in order.

    Args:
        on_recall: called when an older request needs the space of the tensor.
    """

    def __init__(
        self, subscriptions: ProducerSubscriptions, number: int, tensor_id: TensorId, on_recall: Callable[[], None]
    ) -> None:
        self.tensor_id = tensor_id
        self.on_recall = on_recall
        self.lost = asyncio.Event()
        self.subscribed_us = time.time_ns() // 1000
        self._subscriptions = subscriptions
        self._number = number
        self._announcements: deque[pb.TransferEvent] = deque()
        self._changed = asyncio.Event()
        self._is_complete = False
        self._loss = ""

    @property
    def producer(self) -> pb.Producer:
        """Describes the process that has announced a tensor."""
        assert self._subscriptions.producer is not None, "nothing has been announced yet"
        return self._subscriptions.producer

    @property
    def error(self) -> LostError:
        return LostError(f"{self.tensor_id} is lost: {self._loss}")

    async def next(self) -> pb.TransferEvent | None:
        """Returns the next announcement, or None at the end of the stream.

        Raises:
            LostError: the output, or the rest of it, is lost.
        """
        while not self._announcements and not self._is_complete and not self._loss:
            self._changed.clear()
            await self._changed.wait()
        if self._loss:
            raise self.error
        return self._announcements.popleft() if self._announcements else None

    def release_chunk(self, chunk: int) -> None:
        """Ends the lease on a chunk."""
        self._subscriptions.send(pb.TransferCommand(subscription=self._number, release_chunk=chunk))

    def close(self) -> None:
        """Unsubscribes, which ends all leases."""
        self._subscriptions.unsubscribe(self._number)

    def apply_event(self, event: pb.TransferEvent) -> None:
        if self._is_complete or self._loss:
            return
        match event.WhichOneof("kind"):
            case "tensor":
                check_tensor(event.tensor)
                if len(self._announcements) >= MAX_ANNOUNCEMENTS:
                    raise ProtocolError(f"a subscription has {MAX_ANNOUNCEMENTS} tensors that have not been read")
                self._announcements.append(event)
            case "stream_end":
                self._is_complete = True
            case "recall":
                self.on_recall()
            case "lost":
                self.lose(event.lost)
        self._changed.set()

    def lose(self, reason: str) -> None:
        self._loss = self._loss or reason
        self.lost.set()
        self._changed.set()
