"""The data plane of one process: the tensors that it produces and consumes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import partial
from pathlib import Path

from prometheus_client import Metric

from cornserve.pull_protocol import PullProtocol
from cornserve.transport.consumer.client import TransferClient
from cornserve.transport.consumer.fetch import TensorFetcher
from cornserve.transport.consumer.peers import PeerDirectory
from cornserve.transport.consumer.subscription import ProducerSubscriptions
from cornserve.transport.errors import LostError, SlabError
from cornserve.transport.memory import segment
from cornserve.transport.memory.admission import IDLE_SECONDS, RequestAge, SlabAdmission
from cornserve.transport.memory.segment import TOKEN_BYTES
from cornserve.transport.memory.slab import Slab
from cornserve.transport.metrics import TransportMetrics
from cornserve.transport.producer.cache import ContentCache
from cornserve.transport.producer.production import Production
from cornserve.transport.producer.production_lookup import ProductionRegistry
from cornserve.transport.producer.server import ConsumerSubscribers, ProducerServer
from cornserve.transport.protocol import PRODUCER_CODEC
from cornserve.transport.pull.puller import PullSource
from cornserve.transport.pull.selection import PullerSelection
from cornserve.transport.tensor import ProductionId, TensorId, TensorView
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionFactories


def _ignore_recall() -> None:
    """Keeps the tensor until the consumer has finished."""


class Transport:
    """Produces and consumes tensors. A process has one transport.

    Args:
        directory: in tmpfs; processes of a node that use the same directory share memory.
        credentials: for connections to other processes.
        slab_bytes: the most memory that the slab takes, which holds all tensors of this process. See `create_slab`.
        request_bytes: the quota of each request in the slab. The oldest request has it in reserve.
        cache_bytes: the most that unused tensors may occupy, for requests with the same content.
        lease_seconds: a consuming process that is silent for longer loses its leases.
        reap_seconds: interval at which the segments of dead processes are removed from the directory.
        peers: the endpoints at which tensors may be consumed; None permits all.
        idle_seconds: memory of the slab that no tensor has used for this time is given back.
        protocol: copies tensors from other nodes. TCP is used if it does not work.
    """

    def __init__(
        self,
        directory: Path,
        credentials: ConnectionCredentials,
        *,
        slab_bytes: int,
        request_bytes: int,
        cache_bytes: int = 0,
        lease_seconds: float = 10.0,
        reap_seconds: float = 60.0,
        peers: PeerDirectory | None = None,
        idle_seconds: float = IDLE_SECONDS,
        protocol: PullProtocol = PullProtocol.AUTO,
    ) -> None:
        self._directory = directory
        self._lease_seconds = lease_seconds
        self._reap_seconds = reap_seconds
        self._reaping: asyncio.Task[None] | None = None
        self._token = os.urandom(TOKEN_BYTES)
        self._slab = Slab(directory, self._token, slab_bytes)
        self._admission = SlabAdmission(self._slab, request_bytes, idle_seconds)
        self._pullers = PullerSelection(protocol, credentials)
        self._metrics = TransportMetrics(self._admission, self._pullers)
        self._cache = ContentCache(self._admission.blocks, cache_bytes, self._metrics)
        self._registry = ProductionRegistry()
        self._server: ProducerServer | None = None
        self._fetcher = TensorFetcher(self._admission, self._pullers, self._metrics, idle_seconds)

        def apply_event(event: pb.TransferEvent) -> None:
            subscriptions.apply_event(event)

        subscribers = ConsumerSubscribers(self._registry, apply_event)
        producer = pb.Producer(token=self._token, segment=self._slab.name)
        subscriptions = ProducerSubscriptions(subscribers.apply_command, local=producer)
        self._client = TransferClient(
            subscriptions, credentials, peers, lease_seconds, self._fetcher.on_disconnect, self._metrics
        )

    async def start(self) -> ConnectionFactories:
        """Removes the segments of dead processes, now and periodically, and serves consumers.

        Returns:
            the argument for the `ConnectionListener` at which consumers connect.
        """
        await asyncio.to_thread(segment.reap, self._directory)
        self._reaping = asyncio.create_task(self._reap(), context=Context())
        await self._pullers.start()
        producer = pb.Producer(token=self._token, segment=self._slab.name, protocols=self._pullers.protocols)
        self._server = ProducerServer(self._registry, producer, self._lease_seconds, self._metrics)
        return {PRODUCER_CODEC.preamble: self._server.create_connection, **self._pullers.serve(self._find_pulled)}

    async def create_slab(self) -> None:
        """Creates the slab before its first use. If this fails, the first use tries again, and reports the error."""
        with suppress(SlabError):
            await self._admission.growth.start()

    async def stop(self) -> None:
        """Closes all connections and removes the slab. Processes that map it may still read."""
        if self._reaping is not None:
            self._reaping.cancel()
            await asyncio.gather(self._reaping, return_exceptions=True)
        if self._server is not None:
            await self._server.close()
        await self._client.close()
        await self._fetcher.close()
        await self._pullers.close()
        await self._admission.growth.stop()
        await self._slab.remove()

    def produce(self, request_id: str, invocation: int, attempt: int, *, arrived_us: int) -> Production:
        """Returns a production for the tensors of one invocation. The caller must release or revoke it.

        Args:
            arrived_us: arrival time of the request in microseconds since 1970. Older requests get space first.

        Raises:
            DuplicateProductionError: the production of this attempt has not ended.
        """
        production_id = ProductionId(request_id, invocation, attempt)
        age = RequestAge(arrived_us, request_id)
        return Production(production_id, age, self._admission, self._cache, self._registry)

    @asynccontextmanager
    async def consume(
        self, tensor_id: TensorId, on_recall: Callable[[], None] = _ignore_recall
    ) -> AsyncIterator[TensorView]:
        """Yields a tensor, and holds a lease on it until the block ends.

        The tensor, and even the invocation that produces it, need not exist yet.

        Args:
            on_recall: called when an older request needs the space of the tensor. A consumer that still waits for
                another tensor leaves the block, because the older request may have that one. The tensor is lost.

        Raises:
            LostError: the tensor is lost.
        """
        async with self._client.subscribe(tensor_id, on_recall) as subscription:
            announcement = await subscription.next()
            if announcement is None:
                raise LostError(f"{tensor_id} is lost: the stream ended without a tensor")
            async with self._fetcher.fetch(subscription, announcement) as view:
                yield view

    async def consume_stream(self, tensor_id: TensorId) -> AsyncGenerator[TensorView, None]:
        """Yields the chunks of a stream of tensors. The lease on each ends when the next is requested.

        Use `contextlib.aclosing` if the loop may end early.

        Raises:
            LostError: the rest of the stream is lost.
        """
        async with self._client.subscribe(tensor_id, _ignore_recall) as subscription:
            while (announcement := await subscription.next()) is not None:
                async with self._fetcher.fetch(subscription, announcement) as view:
                    yield view
                subscription.release_chunk(announcement.chunk)

    def metrics(self) -> Iterable[Metric]:
        """Returns the metrics for Prometheus. Can run in any thread."""
        return self._metrics.collect()

    async def _reap(self) -> None:
        """Removes the segments of processes that have died. In a cluster, no launcher removes them."""
        while True:
            await asyncio.sleep(self._reap_seconds)
            await asyncio.to_thread(segment.reap, self._directory)

    def _find_pulled(self, capability: bytes) -> PullSource | None:
        """Returns a tensor that another node pulls, or None if it has been freed."""
        block = self._admission.blocks.find(capability)
        if block is None:
            return None
        self._metrics.sent_bytes += block.nbytes
        mapping, generation, offset = self._slab.mapping, block.generation, block.offset
        return PullSource(
            mapping.view(offset, block.nbytes),
            lambda: mapping.has_generation(generation, offset),
            partial(self._admission.blocks.hold_memory, block),
        )
