"""One output of a production: what has been published of it, and who reads it."""

from __future__ import annotations

from cornserve.transport.announcement import Consumer, Published
from cornserve.transport.store import Block, Store


class Subscription:
    """What one consumer holds of one output."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.publication: Publication | None = None
        """None: it waits for the production to begin."""
        self.leases: dict[int, Block] = {}

    def release(self, chunk: int) -> None:
        block = self.leases.pop(chunk, None)
        if block is not None and self.publication is not None:
            self.publication.take_back(chunk, block)

    def release_all(self) -> None:
        for chunk in list(self.leases):
            self.release(chunk)


class Publication:
    """Holds its tensors for the production that owns them.

    Chunks of a stream that all present consumers have read are kept as long as there is room, for a consumer that comes
    later, or comes again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chunks: list[Published | None] = []
        """None: evicted."""
        self._owned: set[int] = set()
        self._subscriptions: set[Subscription] = set()
        self.is_stream = False
        self.is_complete = False

    def publish(self, tensor: Published, *, is_last: bool) -> None:
        """Takes over the caller's reference to the block."""
        chunk = len(self._chunks)
        self._chunks.append(tensor)
        self._owned.add(chunk)
        self.is_complete = is_last
        for subscription in list(self._subscriptions):
            self._lease(subscription, chunk, tensor)

    def complete(self) -> None:
        """There are no more chunks."""
        self.is_complete = True
        for subscription in self._subscriptions:
            subscription.consumer.on_end()

    def subscribe(self, subscription: Subscription) -> None:
        if None in self._chunks:
            subscription.consumer.on_lost("the first chunks of the stream have made room for others")
            return
        subscription.publication = self
        self._subscriptions.add(subscription)
        for chunk, tensor in enumerate(self._chunks):
            assert tensor is not None
            self._lease(subscription, chunk, tensor)
        if self.is_complete and self.is_stream:
            subscription.consumer.on_end()

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        subscription.release_all()

    def release(self) -> None:
        """The owner needs it no more. Who reads it may go on; who still waits for it waits in vain."""
        if not self.is_complete:
            self._lose("its producer has ended without it")
        for chunk, tensor in enumerate(self._chunks):
            if tensor is not None and self.is_stream:
                self._store.keep(tensor.block, None)
            if tensor is not None and chunk in self._owned:
                self._store.drop(tensor.block)
        self._owned.clear()
        self._chunks.clear()

    def revoke(self, reason: str) -> None:
        """Takes it back from whoever reads it."""
        self._lose(reason)
        self.is_complete = True
        self.release()

    def recall(self) -> bool:
        """Asks whoever has subscribed to give back what has been published, and says whether there is anybody."""
        asked = list(self._subscriptions) if self._chunks else []
        for subscription in asked:
            subscription.consumer.on_recall()
        return bool(asked)

    def take_back(self, chunk: int, block: Block) -> None:
        """A consumer has read it."""
        if self.is_stream and chunk in self._owned and block.references == 2:
            self._owned.remove(chunk)
            self._store.keep(block, self)
            self._store.drop(block)
        self._store.drop(block)

    def on_idle(self, block: Block) -> None:
        """Nothing depends on it."""

    def on_evicted(self, block: Block) -> None:
        self._chunks = [None if chunk is not None and chunk.block is block else chunk for chunk in self._chunks]

    def _lease(self, subscription: Subscription, chunk: int, tensor: Published) -> None:
        self._store.hold(tensor.block)
        subscription.leases[chunk] = tensor.block
        subscription.consumer.on_tensor(chunk, tensor.ref)

    def _lose(self, reason: str) -> None:
        for subscription in list(self._subscriptions):
            self.unsubscribe(subscription)
            subscription.consumer.on_lost(reason)
