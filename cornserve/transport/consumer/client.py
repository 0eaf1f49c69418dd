"""Connects to producing processes and subscribes to their tensors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Final

from cornserve.transport.consumer.peers import PeerDirectory
from cornserve.transport.consumer.subscription import ProducerSubscriptions, Subscription
from cornserve.transport.errors import LostError
from cornserve.transport.heartbeat import HEARTBEATS_PER_LEASE, HeartbeatConnection
from cornserve.transport.metrics import TransportMetrics
from cornserve.transport.protocol import CONSUMER_CODEC
from cornserve.transport.tensor import TensorId
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.credentials import ConnectionCredentials

PRODUCER_TIMEOUT_SECONDS: Final = 15.0
"""Limit for the silence of a producer, and for connecting to it."""


class TransferClient:
    """Subscribes directly in this process, and over one connection at each other process.

    Args:
        local: the subscriptions at this process.
        credentials: for the connections to producers.
        peers: the endpoints to which this process may connect; None permits all.
        on_disconnect: called when the connection to a producer has closed.
    """

    def __init__(
        self,
        local: ProducerSubscriptions,
        credentials: ConnectionCredentials,
        peers: PeerDirectory | None,
        lease_seconds: float,
        on_disconnect: Callable[[ProducerConnection], None],
        metrics: TransportMetrics,
    ) -> None:
        self._local = local
        self._credentials = credentials
        self._peers = peers
        self._lease_seconds = lease_seconds
        self._on_disconnect = on_disconnect
        self._metrics = metrics
        self._connections: dict[str, ProducerConnection] = {}
        self._local_endpoints: set[str] = set()
        """Endpoints of this process, which it learns from the first connection to itself."""

    @asynccontextmanager
    async def subscribe(self, tensor_id: TensorId, on_recall: Callable[[], None]) -> AsyncIterator[Subscription]:
        """Raises `LostError` if this process may not connect to the endpoint. No connection object exists then."""
        if not await self._is_permitted(tensor_id.endpoint):
            self._metrics.lost += 1
            reason = f"{tensor_id.endpoint!r} is not an endpoint of an executor of this instance"
            raise LostError(f"{tensor_id} is lost: {reason}")
        subscription = self._subscriptions_at(tensor_id.endpoint).subscribe(tensor_id, on_recall)
        try:
            yield subscription
        finally:
            subscription.close()
            self._metrics.lost += subscription.lost.is_set()

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in list(self._connections.values())))

    async def _is_permitted(self, endpoint: str) -> bool:
        if self._peers is None or endpoint in self._connections or endpoint in self._local_endpoints:
            return True
        return await self._peers.contains(endpoint)

    def _subscriptions_at(self, endpoint: str) -> ProducerSubscriptions:
        connection = self._connections.get(endpoint)
        if connection is not None and connection.subscriptions.producer is not None:
            assert self._local.producer is not None
            if connection.subscriptions.producer.token == self._local.producer.token:
                self._local_endpoints.add(endpoint)
        if endpoint in self._local_endpoints:
            return self._local
        if connection is None:
            connection = ProducerConnection(endpoint, self._credentials, self._lease_seconds, self._remove)
            self._connections[endpoint] = connection
        return connection.subscriptions

    def _remove(self, connection: ProducerConnection) -> None:
        self._connections.pop(connection.endpoint, None)
        self._on_disconnect(connection)


class ProducerConnection:
    """The connection to one producing process. All subscriptions are lost when it closes."""

    def __init__(
        self,
        endpoint: str,
        credentials: ConnectionCredentials,
        lease_seconds: float,
        on_closed: Callable[[ProducerConnection], None],
    ) -> None:
        self.endpoint = endpoint
        self._credentials = credentials
        heartbeat = pb.TransferCommand(heartbeat=True)
        self._connection = HeartbeatConnection(CONSUMER_CODEC, self._apply_event, heartbeat)
        self.subscriptions = ProducerSubscriptions(self._connection.send)
        self._heartbeat_seconds = lease_seconds / HEARTBEATS_PER_LEASE
        self._on_closed = on_closed
        # An empty context, because the connection outlives the request that opens it.
        self._task = asyncio.create_task(self._run(), name=f"transfer {endpoint}", context=Context())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _apply_event(self, event: pb.TransferEvent) -> None:
        self.subscriptions.apply_event(event)

    async def _run(self) -> None:
        reason = "this process ends"
        heartbeats = max(2, round(PRODUCER_TIMEOUT_SECONDS / self._heartbeat_seconds))
        try:
            async with asyncio.timeout(PRODUCER_TIMEOUT_SECONDS):
                await self._connection.connect(self.endpoint, self._credentials)
            if await self._connection.exchange_heartbeats(self._heartbeat_seconds, heartbeats):
                reason = f"its process hangs: it was silent for {heartbeats * self._heartbeat_seconds:g} s"
            else:
                reason = f"the connection to its process has closed: {await self._connection.wait_closed()}"
        except TimeoutError:
            reason = f"no connection to its process within {PRODUCER_TIMEOUT_SECONDS:g} s"
        except (OSError, ValueError) as error:
            reason = f"no connection to its process: {error}"
        finally:
            self._connection.abort(reason)
            self._on_closed(self)
            self.subscriptions.lose_all(reason)
            await self._connection.wait_closed()
