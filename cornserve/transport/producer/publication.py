"""One output of a production: its published tensors and its subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cornserve.transport.memory.refcounted_blocks import Block, BlockPool
from cornserve.transport.tensor import ProductionId
from cornserve.v1 import transfer_pb2 as pb


@dataclass(frozen=True, slots=True)
class PublishedTensor:
    block: Block
    ref: pb.TensorRef


class Subscriber:
    """One consumer's subscription to an output. Holds a lease on each tensor that was announced to it."""

    def __init__(
        self, production: ProductionId, output: str, subscription: int, send: Callable[[pb.TransferEvent], None]
    ) -> None:
        self.production = production
        self.output = output
        self.publication: Publication | None = None
        """The publication of the output, or None until the production begins."""
        self._subscription = subscription
        self._send = send
        self._leases: dict[int, Block] = {}

    def announce(self, chunk: int, tensor: PublishedTensor) -> None:
        """Takes over a reference to the block."""
        self._leases[chunk] = tensor.block
        self._send(pb.TransferEvent(subscription=self._subscription, tensor=tensor.ref, chunk=chunk))

    def end_stream(self) -> None:
        self._send(pb.TransferEvent(subscription=self._subscription, stream_end=True))

    def recall(self) -> None:
        self._send(pb.TransferEvent(subscription=self._subscription, recall=True))

    def lose(self, reason: str) -> None:
        self._send(pb.TransferEvent(subscription=self._subscription, lost=reason))

    def release_chunk(self, chunk: int) -> None:
        block = self._leases.pop(chunk, None)
        if block is not None and self.publication is not None:
            self.publication.release_lease(chunk, block)

    def release_all(self) -> None:
        for chunk in list(self._leases):
            self.release_chunk(chunk)


class Publication:
    """Holds the tensors of an output while its production needs them.

    Chunks of a stream that all subscribers have read stay cached while there is space, for later subscribers.
    """

    def __init__(self, blocks: BlockPool) -> None:
        self._blocks = blocks
        self._chunks: list[PublishedTensor | None] = []
        """The published chunks, in order. None replaces an evicted chunk."""
        self._owned: set[int] = set()
        """Chunks to which the production has a reference."""
        self._cached: dict[Block, int] = {}
        """The numbers of the chunks that all subscribers have read and that are not evicted."""
        self._read = asyncio.Event()
        """Set when the production gives up a reference to a chunk."""
        self._subscribers: set[Subscriber] = set()
        self.is_stream = False
        self.is_complete = False

    @property
    def is_used(self) -> bool:
        """Whether the output has tensors or subscribers, or is a stream that its producer writes."""
        return bool(self._chunks or self._subscribers or self.is_stream or self.is_complete)

    def publish(self, tensor: PublishedTensor, *, is_last: bool) -> None:
        """Takes over the caller's reference to the block."""
        chunk = len(self._chunks)
        self._chunks.append(tensor)
        self._owned.add(chunk)
        self.is_complete = is_last
        for subscriber in list(self._subscribers):
            self._announce(subscriber, chunk, tensor)

    async def wait_for_window(self, window: int) -> None:
        """Waits until fewer than `window` chunks are unread, or the output has ended."""
        while len(self._owned) >= window:
            self._read.clear()
            await self._read.wait()

    def discard(self) -> None:
        """Drops all chunks of a stream. Present and later subscribers lose it."""
        self._lose("its producer has discarded it, because its consumer had ended")
        self.is_complete = True
        self.release()
        self._chunks.append(None)

    def end_stream(self) -> None:
        self.is_complete = True
        for subscriber in self._subscribers:
            subscriber.end_stream()

    def subscribe(self, subscriber: Subscriber) -> None:
        if None in self._chunks:
            subscriber.lose("chunks of the stream have been evicted or discarded")
            return
        subscriber.publication = self
        self._subscribers.add(subscriber)
        for chunk, tensor in enumerate(self._chunks):
            assert tensor is not None
            self._announce(subscriber, chunk, tensor)
        if self.is_complete and self.is_stream:
            subscriber.end_stream()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        subscriber.release_all()

    def release(self) -> None:
        """Drops the production's references. Subscribers keep their leases; an unfinished output is lost."""
        if not self.is_complete:
            self._lose("its producer has ended without it")
        for chunk, tensor in enumerate(self._chunks):
            if tensor is not None and self.is_stream:
                self._blocks.set_cache_owner(tensor.block, None)
            if tensor is not None and chunk in self._owned:
                self._blocks.release(tensor.block)
        self._owned.clear()
        self._cached.clear()
        self._chunks.clear()
        self._read.set()

    def revoke(self, reason: str) -> None:
        """Ends all leases and drops the production's references."""
        self._lose(reason)
        self.is_complete = True
        self.release()

    def recall(self) -> bool:
        """Requests the subscribers to release the tensors. Returns False if no subscriber has a tensor."""
        subscribers = list(self._subscribers) if self._chunks else []
        for subscriber in subscribers:
            subscriber.recall()
        return bool(subscribers)

    def release_lease(self, chunk: int, block: Block) -> None:
        if self.is_stream and chunk in self._owned and block.references == 2:  # all subscribers have read it
            self._owned.remove(chunk)
            self._cached[block] = chunk
            self._blocks.set_cache_owner(block, self)
            self._blocks.release(block)
            self._read.set()
        self._blocks.release(block)

    def on_idle(self, block: Block) -> None: ...

    def on_evicted(self, block: Block) -> None:
        self._chunks[self._cached.pop(block)] = None

    def _announce(self, subscriber: Subscriber, chunk: int, tensor: PublishedTensor) -> None:
        self._blocks.retain(tensor.block)
        subscriber.announce(chunk, tensor)

    def _lose(self, reason: str) -> None:
        for subscriber in list(self._subscribers):
            self.unsubscribe(subscriber)
            subscriber.lose(reason)
