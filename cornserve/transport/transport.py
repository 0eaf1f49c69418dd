"""The data plane of one process: what it produces, and what it consumes of others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import Metric

from cornserve.transport import segment
from cornserve.transport.admission import Admission, Age
from cornserve.transport.arrivals import Arrivals
from cornserve.transport.board import Board, Name
from cornserve.transport.consumers import Consumers
from cornserve.transport.content import Contents
from cornserve.transport.ends import PRODUCER
from cornserve.transport.errors import LostError
from cornserve.transport.meter import Meter
from cornserve.transport.production import Production
from cornserve.transport.puller import Export, Piece, Puller
from cornserve.transport.segment import TOKEN_BYTES
from cornserve.transport.slab import Slab
from cornserve.transport.subscriptions import Subscriptions
from cornserve.transport.tcp import TcpPuller
from cornserve.transport.tensor_id import TensorId
from cornserve.transport.tensor_view import TensorView
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.listener import ConnectionFactories


def _ignore() -> None:
    """A recall: whoever uses a tensor will be done with it."""


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
        self._puller: Puller = TcpPuller()
        self._consumers: Consumers | None = None
        self._arrivals = Arrivals(self._slab, self._admission, self._puller, self._meter)
        self._subscriptions = Subscriptions(self._board, self._token, lease_seconds, self._arrivals.forget, self._meter)

    async def start(self, host: str) -> ConnectionFactories:
        """Removes what dead processes have left.

        Args:
            host: the address on which other nodes may pull.

        Returns:
            what a `MessageListener` needs, so that others find us.
        """
        await asyncio.to_thread(segment.reap, self._directory)
        producer = pb.Producer(
            token=self._token,
            segment=self._slab.path.name,
            puller=self._puller.name,
            address=await self._puller.open(host, self._find),
        )
        self._consumers = Consumers(self._board, producer, self._lease_seconds, self._meter)
        return {PRODUCER.preamble: self._consumers.answer}

    async def stop(self) -> None:
        """Ends all connections, and removes the slab. Whoever maps it may read on."""
        if self._consumers is not None:
            await self._consumers.close()
        await self._subscriptions.close()
        await self._arrivals.close()
        await self._puller.close()
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
    async def consume(self, source: TensorId, on_recall: Callable[[], None] = _ignore) -> AsyncIterator[TensorView]:
        """A tensor, as soon as it is there, and held until the block ends.

        It may be asked for before it exists, or before the invocation that will produce it has started.

        Args:
            on_recall: is called when an older request waits for its room. Who holds it, and waits for another tensor,
                leaves the block then, and has it made again: the older one may have what it waits for.

        Raises:
            LostError: it will not come.
        """
        async with self._subscriptions.subscribed(source, on_recall) as incoming:
            offer = await incoming.intake.next()
            if offer is None:
                raise LostError(f"{source} is lost: it is a stream, and has ended before it began")
            async with self._arrivals.readable(incoming, offer) as received:
                yield received

    async def consume_stream(self, source: TensorId) -> AsyncGenerator[TensorView, None]:
        """The chunks of a stream of tensors. Each is held until the next one is asked for.

        Close it (`contextlib.aclosing`) if you may leave it early.

        Raises:
            LostError: there will be no more, and it was not complete.
        """
        async with self._subscriptions.subscribed(source, _ignore) as incoming:
            while (offer := await incoming.intake.next()) is not None:
                async with self._arrivals.readable(incoming, offer) as received:
                    yield received
                incoming.link.release(offer.chunk)

    def metrics(self) -> Iterable[Metric]:
        """For Prometheus; may be called in any thread."""
        return self._meter.metrics()

    def _find(self, piece: Piece) -> Export | None:
        """What another node wants to pull."""
        block = self._admission.store.find(piece.offset, piece.nbytes, piece.generation)
        if piece.token != self._token or block is None:
            return None
        self._meter.sent_bytes += piece.nbytes
        mapping = self._slab.mapping
        return Export(mapping.view(piece.offset, piece.nbytes), lambda: mapping.holds(piece.generation, piece.offset))
