"""How what has been offered becomes readable here, by the shortest way there is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from cornserve.concurrency import run_unless
from cornserve.transport.admission import Admission, Age
from cornserve.transport.errors import LostError
from cornserve.transport.intake import Offer
from cornserve.transport.meter import PULLED, SAME_NODE, SAME_PROCESS, Meter
from cornserve.transport.neighbours import Neighbours
from cornserve.transport.peer import Peer
from cornserve.transport.puller import Piece, Puller
from cornserve.transport.segment import Location, Mapping
from cornserve.transport.slab import Slab
from cornserve.transport.store import Block
from cornserve.transport.subscriptions import Incoming
from cornserve.transport.tensor_view import TensorView
from cornserve.v1 import transfer_pb2 as pb


class Arrivals:
    def __init__(self, slab: Slab, admission: Admission, puller: Puller, meter: Meter) -> None:
        self._slab = slab
        self._admission = admission
        self._puller = puller
        self._meter = meter
        self._neighbours = Neighbours(slab.path.parent)

    @asynccontextmanager
    async def readable(self, incoming: Incoming, offer: Offer) -> AsyncIterator[TensorView]:
        """The tensor, until the block ends."""
        way, arrival = self._way(incoming, offer)
        async with arrival as received:
            since_us = max(offer.tensor.published_us, incoming.intake.asked_us)
            self._meter.received(way, offer.tensor.nbytes, max(0, time.time_ns() // 1000 - since_us) / 1e6)
            yield received

    def forget(self, peer: Peer) -> None:
        """The connection to it is broken."""
        if peer.producer is not None:
            self._neighbours.forget(peer.producer.token)
            self._puller.forget(peer.host, peer.producer.address)

    async def close(self) -> None:
        await self._neighbours.close()

    def _way(self, incoming: Incoming, offer: Offer) -> tuple[str, AbstractAsyncContextManager[TensorView]]:
        producer = incoming.producer
        if producer is None or producer.segment == self._slab.path.name:
            return SAME_PROCESS, _mapped(offer.tensor, self._slab.path, self._slab.mapping)
        if mapping := self._neighbours.find(producer.segment, producer.token):
            path = self._slab.path.with_name(Path(producer.segment).name)
            return SAME_NODE, _mapped(offer.tensor, path, mapping)
        return PULLED, self._pulled(incoming, producer, offer)

    @asynccontextmanager
    async def _pulled(self, incoming: Incoming, producer: pb.Producer, offer: Offer) -> AsyncIterator[TensorView]:
        """In our own slab, as if it were the request's own tensor. The producer's is released at once."""
        tensor = offer.tensor
        account = self._admission.open(Age(tensor.arrived_us, incoming.intake.source.request_id))
        try:
            block = await self._admission.take(account, tensor.nbytes)
            try:
                try:
                    await self._pull(incoming, producer, tensor, block)
                finally:
                    self._admission.store.seal(block)
                incoming.link.release(offer.chunk)
                if block.region is self._admission.reserve:
                    account.recalls.add(incoming.intake.recall)
                yield _received(
                    tensor, self._slab.path, block.extent.offset, block.extent.generation, self._slab.mapping
                )
            finally:
                account.recalls.discard(incoming.intake.recall)
                self._admission.disown(account, block)
                self._admission.store.drop(block)
        finally:
            self._admission.close(account)

    async def _pull(self, incoming: Incoming, producer: pb.Producer, tensor: pb.TensorRef, block: Block) -> None:
        intake, peer = incoming.intake, incoming.peer
        assert peer is not None
        if producer.puller != self._puller.name:
            theirs, ours = producer.puller, self._puller.name
            raise LostError(f"{intake.source} is on another node, which sends by {theirs!r}, and we pull by {ours!r}")
        piece = Piece(producer.token, tensor.offset, tensor.nbytes, tensor.generation)
        into = self._admission.store.buffer(block)
        try:
            pulling = self._puller.pull(peer.host, producer.address, piece, into)
            await run_unless(intake.lost, pulling)
        except LostError as error:
            intake.lose(str(error))
        except OSError as error:
            intake.lose(f"cannot pull it from {peer.host}: {error}")
        if intake.lost.is_set():
            raise intake.error


@asynccontextmanager
async def _mapped(tensor: pb.TensorRef, path: Path, mapping: Mapping) -> AsyncIterator[TensorView]:
    """Where its producer has it."""
    yield _received(tensor, path, tensor.offset, tensor.generation, mapping)


def _received(tensor: pb.TensorRef, path: Path, offset: int, generation: int, mapping: Mapping) -> TensorView:
    location = Location(str(path), offset, tensor.nbytes, generation)
    view = mapping.view(offset, tensor.nbytes)
    return TensorView(tensor.dtype, tuple(tensor.shape), tensor.metadata, view, location, mapping)
