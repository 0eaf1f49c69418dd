"""Serves the processes that consume tensors of this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import Final

from cornserve.transport.heartbeat import HEARTBEATS_PER_LEASE, HeartbeatConnection
from cornserve.transport.metrics import TransportMetrics
from cornserve.transport.producer.production_lookup import ProductionRegistry
from cornserve.transport.producer.publication import Subscriber
from cornserve.transport.protocol import PRODUCER_CODEC
from cornserve.transport.tensor import ProductionId
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.codec import ProtocolError

MAX_SUBSCRIPTIONS: Final = 65_536
"""Subscriptions of one consuming process. Further ones are lost immediately."""

log = logging.getLogger(__name__)

_ConsumerConnection = HeartbeatConnection[pb.TransferEvent, pb.TransferCommand]


class ConsumerSubscribers:
    """The subscribers of one consuming process, which may be this process.

    Args:
        send: sends an event to the consumer. It must neither block nor call back.
    """

    def __init__(self, registry: ProductionRegistry, send: Callable[[pb.TransferEvent], None]) -> None:
        self._registry = registry
        self._send = send
        self._subscribers: dict[int, Subscriber] = {}

    def apply_command(self, command: pb.TransferCommand) -> None:
        """Raises `ProtocolError` if the consumer uses the number of a subscription again."""
        match command.WhichOneof("kind"):
            case "subscribe":
                tensor = command.subscribe
                production = ProductionId(tensor.request_id, tensor.invocation, tensor.attempt)
                if command.subscription in self._subscribers:
                    raise ProtocolError(f"the number {command.subscription} has a subscription already")
                if len(self._subscribers) >= MAX_SUBSCRIPTIONS:
                    lost = f"its consumer has {MAX_SUBSCRIPTIONS} subscriptions already"
                    self._send(pb.TransferEvent(subscription=command.subscription, lost=lost))
                    return
                subscriber = Subscriber(production, tensor.output, command.subscription, self._send)
                self._subscribers[command.subscription] = subscriber
                self._registry.subscribe(subscriber)
            case "release_chunk" if command.subscription in self._subscribers:
                self._subscribers[command.subscription].release_chunk(command.release_chunk)
            case "unsubscribe" if command.subscription in self._subscribers:
                self._registry.unsubscribe(self._subscribers.pop(command.subscription))

    def close(self) -> None:
        """Ends all subscriptions and their leases."""
        while self._subscribers:
            _, subscriber = self._subscribers.popitem()
            self._registry.unsubscribe(subscriber)


class ProducerServer:
    """Keeps the subscribers of each consuming process until it disconnects, or is silent for `lease_seconds`.

    Args:
        producer: describes this process; the first event of each connection.
    """

    def __init__(
        self, registry: ProductionRegistry, producer: pb.Producer, lease_seconds: float, metrics: TransportMetrics
    ) -> None:
        self._registry = registry
        self._producer = producer
        self._lease_seconds = lease_seconds
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def create_connection(self) -> _ConsumerConnection:
        """Returns this process's end of an accepted connection."""
        heartbeat = pb.TransferEvent(heartbeat=True)

        def apply_command(command: pb.TransferCommand) -> None:
            subscribers.apply_command(command)

        connection = _ConsumerConnection(PRODUCER_CODEC, apply_command, heartbeat)
        subscribers = ConsumerSubscribers(self._registry, connection.send)
        if self._is_closed:
            connection.abort("this process ends")
            return connection
        connection.send(pb.TransferEvent(producer=self._producer))
        task = asyncio.create_task(self._serve(connection, subscribers), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return connection

    async def close(self) -> None:
        """Closes all connections, including those that are accepted later."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, connection: _ConsumerConnection, subscribers: ConsumerSubscribers) -> None:
        try:
            if await connection.exchange_heartbeats(self._lease_seconds / HEARTBEATS_PER_LEASE, HEARTBEATS_PER_LEASE):
                self._metrics.expired_leases += 1
                log.warning("a consumer was silent for %g s: its leases have expired", self._lease_seconds)
        finally:
            connection.abort("the producer has closed the connection")
            subscribers.close()
            await connection.wait_closed()
