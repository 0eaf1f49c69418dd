"""What this process has asked for, at itself and at others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cornserve.transport.board import Board
from cornserve.transport.intake import Intake, Link
from cornserve.transport.local import LocalLink
from cornserve.transport.meter import Meter
from cornserve.transport.peer import Peer
from cornserve.transport.tensor_id import TensorId
from cornserve.v1 import transfer_pb2 as pb


@dataclass(frozen=True, slots=True)
class Incoming:
    """A subscription, at the consumer."""

    intake: Intake
    link: Link
    peer: Peer | None
    """None: the producer is this process."""

    @property
    def producer(self) -> pb.Producer | None:
        """Who answers; known as soon as something has been offered. None: this process."""
        return None if self.peer is None else self.peer.producer


class Subscriptions:
    """Finds the way to each producer: no connection where it is this process, else one to each endpoint.

    Args:
        token: this process's.
        lease_seconds: how long a producer may be silent.
        on_lost: called with a producing process whose connection has broken.
    """

    def __init__(
        self, board: Board, token: bytes, lease_seconds: float, on_lost: Callable[[Peer], None], meter: Meter
    ) -> None:
        self._board = board
        self._token = token
        self._lease_seconds = lease_seconds
        self._on_lost = on_lost
        self._meter = meter
        self._peers: dict[str, Peer] = {}
        self._own_endpoints: set[str] = set()
        """Found out by asking there."""

    @asynccontextmanager
    async def subscribed(self, source: TensorId, recall: Callable[[], None]) -> AsyncIterator[Incoming]:
        incoming = self._subscribe(Intake(source, recall))
        try:
            yield incoming
        finally:
            incoming.link.unsubscribe()
            self._meter.lost += incoming.intake.lost.is_set()

    async def close(self) -> None:
        await asyncio.gather(*(peer.close() for peer in list(self._peers.values())))

    def _subscribe(self, intake: Intake) -> Incoming:
        source = intake.source
        peer = self._peers.get(source.endpoint)
        if peer is not None and peer.producer is not None and peer.producer.token == self._token:
            self._own_endpoints.add(source.endpoint)
        if source.endpoint in self._own_endpoints:
            return Incoming(intake, LocalLink(self._board, intake), None)
        if peer is None:
            peer = self._peers[source.endpoint] = Peer(source.endpoint, self._lease_seconds, self._forget)
        return Incoming(intake, peer.subscribe(intake), peer)

    def _forget(self, peer: Peer) -> None:
        self._peers.pop(peer.endpoint, None)
        self._on_lost(peer)
