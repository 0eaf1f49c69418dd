"""The data plane of one process: what it produces, and what it consumes of others."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from prometheus_client import Metric

from cornserve.transport import segment
from cornserve.transport.admission import Admission, Age
from cornserve.transport.board import Board, Name
from cornserve.transport.content import Contents
from cornserve.transport.errors import LostError
from cornserve.transport.intake import Intake, Link, Offer
from cornserve.transport.local import LocalLink
from cornserve.transport.meter import SAME_NODE, SAME_PROCESS, Meter
from cornserve.transport.neighbours import Neighbours
from cornserve.transport.peer import Peer
from cornserve.transport.production import Production
from cornserve.transport.received import Received
from cornserve.transport.segment import TOKEN_BYTES, Mapping
from cornserve.transport.segments import Location
from cornserve.transport.service import TransferService
from cornserve.transport.slab import Slab
from cornserve.transport.source import Source
from cornserve.v1 import transfer_pb2 as pb
from cornserve.v1 import transfer_pb2_grpc


class Transport:
    """One for each process.

    Args:
        directory: in tmpfs, the same for all processes of a node that are to share memory.
        slab_bytes: for all tensors of this process; taken on first use.
        request_bytes: what one request may have of it at once. So much is kept for the oldest request.
        cache_bytes: how much that nobody needs any more may stay, in case that the same content is asked for again.
        lease_seconds: how long a consuming process may be silent before it loses what it holds.
    """

    def __init__(
        self,
        directory: Path,
        *,
        slab_bytes: int,
        request_bytes: int,
        cache_bytes: int = 0,
        lease_seconds: float = 10.0,
    ) -> None:
        self._directory = directory
        self._lease_seconds = lease_seconds
        self._token = os.urandom(TOKEN_BYTES)
        self._slab = Slab(directory, self._token, slab_bytes)
        self._admission = Admission(self._slab, request_bytes)
        self._contents = Contents(self._admission.store, cache_bytes)
        self._meter = Meter(self._admission, self._contents)
        self._board = Board()
        self._neighbours = Neighbours(directory)
        self._peers: dict[str, Peer] = {}
        self._own_endpoints: set[str] = set()
        """Found out by asking there."""

    async def start(self, server: grpc.aio.Server, host: str) -> None:
        """Serves consumers through `server`, which has not been started yet. Removes what dead processes have left.

        Args:
            host: the address on which other nodes may pull.
        """
        await asyncio.to_thread(segment.reap, self._directory)
        producer = pb.Producer(token=self._token, segment=self._slab.path.name)
        service = TransferService(self._board, producer, self._lease_seconds, self._meter)
        transfer_pb2_grpc.add_TransferServicer_to_server(service, server)

    async def stop(self) -> None:
        """Ends all connections to producers, and removes the slab. Whoever maps it may read on."""
        await asyncio.gather(*(peer.close() for peer in list(self._peers.values())))
        await self._neighbours.close()
        await self._slab.remove()

    def produce(self, request_id: str, invocation: int, attempt: int, *, arrived_us: int) -> Production:
        """For the tensors of one invocation; to be released or revoked.

        Args:
            arrived_us: when the request arrived, which says who gets room first.
        """
        account = self._admission.open(Age(arrived_us, request_id))
        name = Name(request_id, invocation, attempt)
        return Production(name, account, self._admission, self._contents, self._board)

    @asynccontextmanager
    async def consume(self, source: Source) -> AsyncIterator[Received]:
        """A tensor, as soon as it is there, and held until the block ends.

        It may be asked for before it exists, or before the invocation that will produce it has started.

        Raises:
            LostError: it will not come.
        """
        async with self._subscribed(source) as subscription:
            offer = await subscription.intake.next()
            if offer is None:
                raise LostError(f"{source} is lost: it is a stream, and has ended before it began")
            yield self._receive(subscription, offer)

    async def consume_stream(self, source: Source) -> AsyncGenerator[Received, None]:
        """The chunks of a stream of tensors. Each is held until the next one is asked for.

        Close it (`contextlib.aclosing`) if you may leave it early.

        Raises:
            LostError: there will be no more, and it was not complete.
        """
        async with self._subscribed(source) as subscription:
            while (offer := await subscription.intake.next()) is not None:
                try:
                    yield self._receive(subscription, offer)
                finally:
                    subscription.link.release(offer.chunk)

    def metrics(self) -> Iterable[Metric]:
        """For Prometheus; may be called in any thread."""
        return self._meter.metrics()

    @asynccontextmanager
    async def _subscribed(self, source: Source) -> AsyncIterator[_Subscription]:
        intake = Intake(source)
        subscription: _Subscription
        if source.endpoint in self._own_endpoints:
            subscription = _Subscription(intake, LocalLink(self._board, intake), None)
        else:
            peer = self._peer(source.endpoint)
            subscription = _Subscription(intake, peer.subscribe(intake), peer)
        try:
            yield subscription
        finally:
            subscription.link.unsubscribe()

    def _peer(self, endpoint: str) -> Peer:
        if endpoint not in self._peers:
            self._peers[endpoint] = Peer(endpoint, self._lease_seconds, self._forget)
        return self._peers[endpoint]

    def _forget(self, peer: Peer) -> None:
        self._peers.pop(peer.endpoint, None)
        if peer.producer is not None:
            self._neighbours.forget(peer.producer.token)

    def _receive(self, subscription: _Subscription, offer: Offer) -> Received:
        """What has been offered, readable."""
        way, received = self._find(subscription, offer)
        since_us = max(offer.published_us, subscription.intake.asked_us)
        self._meter.received(way, offer.nbytes, max(0, time.time_ns() // 1000 - since_us) / 1e6)
        return received

    def _find(self, subscription: _Subscription, offer: Offer) -> tuple[str, Received]:
        if subscription.peer is None:
            return SAME_PROCESS, _received(offer, self._slab.path, self._slab.mapping)
        producer = subscription.peer.producer
        assert producer is not None, "a producer has announced before it has said who it is"
        if producer.token == self._token:
            self._own_endpoints.add(subscription.peer.endpoint)
            return SAME_PROCESS, _received(offer, self._slab.path, self._slab.mapping)
        mapping = self._neighbours.find(producer.segment, producer.token)
        if mapping is None:
            raise LostError(f"{subscription.intake.source} is on another node")
        return SAME_NODE, _received(offer, self._directory / Path(producer.segment).name, mapping)


@dataclass(frozen=True, slots=True)
class _Subscription:
    intake: Intake
    link: Link
    peer: Peer | None
    """None: the producer is this process."""


def _received(offer: Offer, path: Path, mapping: Mapping) -> Received:
    location = Location(str(path), offer.offset, offer.nbytes, offer.generation)
    view = mapping.view(offer.offset, offer.nbytes)
    return Received(offer.dtype, offer.shape, offer.metadata, view, location, mapping)
