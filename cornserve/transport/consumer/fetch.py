"""Makes announced tensors readable: by reference within this process or node, and by a pull from other nodes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from cornserve.concurrency import run_unless
from cornserve.transport.consumer.client import ProducerConnection
from cornserve.transport.consumer.mappings import SegmentMappings
from cornserve.transport.consumer.subscription import Subscription
from cornserve.transport.errors import LostError
from cornserve.transport.memory.admission import RequestAge, SlabAdmission
from cornserve.transport.memory.refcounted_blocks import Block
from cornserve.transport.memory.segment import Location, SegmentMapping
from cornserve.transport.metrics import PULLED, SAME_NODE, SAME_PROCESS, TransportMetrics
from cornserve.transport.pull.puller import PullTarget
from cornserve.transport.pull.selection import PullerSelection
from cornserve.transport.tensor import TensorView
from cornserve.v1 import transfer_pb2 as pb


class TensorFetcher:
    def __init__(
        self, admission: SlabAdmission, pullers: PullerSelection, metrics: TransportMetrics, idle_seconds: float
    ) -> None:
        self._admission = admission
        self._slab = admission.blocks.slab
        self._pullers = pullers
        self._metrics = metrics
        self._mappings = SegmentMappings(self._slab.directory, idle_seconds)

    @asynccontextmanager
    async def fetch(self, subscription: Subscription, announcement: pb.TransferEvent) -> AsyncIterator[TensorView]:
        """Yields the tensor, which stays readable until the block ends."""
        tensor = announcement.tensor
        kind, mapping = self._find_mapping(subscription.producer)
        if mapping is None:
            async with self._pull(subscription, announcement) as block:
                self._record(PULLED, subscription, tensor)
                yield _view(tensor, self._slab.mapping, _location(tensor, self._slab.mapping, block))
            return
        location = _location(tensor, mapping, tensor)
        if not mapping.layout.contains(tensor.offset, tensor.nbytes):
            subscription.lose(f"its producer announced offset {tensor.offset}, which is outside of its slab")
            raise subscription.error
        held = self._mappings.hold(mapping, location) if kind == SAME_NODE else []
        if held is None:
            subscription.lose("its producer has freed it")
            raise subscription.error
        try:
            self._record(kind, subscription, tensor)
            yield _view(tensor, mapping, location)
        finally:
            self._mappings.release(held)

    def _find_mapping(self, producer: pb.Producer) -> tuple[str, SegmentMapping | None]:
        """Returns the kind of transfer, and the segment of the producer if this process can map it."""
        if producer.segment == self._slab.name and self._slab.is_created:
            return SAME_PROCESS, self._slab.mapping
        return SAME_NODE, self._mappings.find(producer.segment, producer.token)

    def on_disconnect(self, connection: ProducerConnection) -> None:
        if producer := connection.subscriptions.producer:
            self._mappings.drop(producer.token)
            self._pullers.disconnect(connection.endpoint)

    async def close(self) -> None:
        await self._mappings.close()

    def _record(self, kind: str, subscription: Subscription, tensor: pb.TensorRef) -> None:
        since_us = max(tensor.published_us, subscription.subscribed_us)
        self._metrics.record_received(kind, tensor.nbytes, max(0, time.time_ns() // 1000 - since_us) / 1e6)

    @asynccontextmanager
    async def _pull(self, subscription: Subscription, announcement: pb.TransferEvent) -> AsyncIterator[Block]:
        """Copies the tensor into this process's slab, charges it to the request, and ends the lease at the producer."""
        tensor = announcement.tensor
        with ExitStack() as cleanup:
            quota = self._admission.open_quota(RequestAge(tensor.arrived_us, subscription.tensor_id.request_id))
            cleanup.callback(self._admission.close_quota, quota)
            block = await self._admission.allocate(quota, tensor.nbytes)
            cleanup.callback(self._admission.blocks.release, block)
            cleanup.callback(self._admission.uncharge, quota, block)
            try:
                await self._copy(subscription, tensor, block)
            finally:
                self._admission.blocks.seal(block)
            subscription.release_chunk(announcement.chunk)
            if block.region is self._admission.reserve:
                quota.recall_callbacks.add(subscription.on_recall)
                cleanup.callback(quota.recall_callbacks.discard, subscription.on_recall)
            yield block

    async def _copy(self, subscription: Subscription, tensor: pb.TensorRef, block: Block) -> None:
        endpoint, theirs = subscription.tensor_id.endpoint, subscription.producer.protocols
        blocks = self._admission.blocks
        into = PullTarget(blocks.writable_buffer(block), partial(blocks.hold_memory, block))
        try:
            await run_unless(subscription.lost, self._pullers.pull(endpoint, theirs, tensor.capability, into))
        except (LostError, OSError) as error:
            subscription.lose(str(error))
        if subscription.lost.is_set():
            raise subscription.error


def _location(tensor: pb.TensorRef, mapping: SegmentMapping, memory: Block | pb.TensorRef) -> Location:
    return Location(mapping.path, memory.offset, tensor.nbytes, memory.generation)


def _view(tensor: pb.TensorRef, mapping: SegmentMapping, location: Location) -> TensorView:
    view = mapping.view(location.offset, location.nbytes)
    return TensorView(tensor.dtype, tuple(tensor.shape), tensor.metadata, view, location, mapping)
