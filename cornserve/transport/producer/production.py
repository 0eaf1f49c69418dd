"""The tensors of one invocation."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cornserve.transport.errors import LostError
from cornserve.transport.memory.admission import RequestAge, SlabAdmission
from cornserve.transport.memory.consumer_shares import ProductionShare
from cornserve.transport.memory.refcounted_blocks import Block
from cornserve.transport.memory.segment import Location
from cornserve.transport.producer.cache import ContentCache
from cornserve.transport.producer.production_lookup import ProductionRegistry
from cornserve.transport.producer.publication import Publication, PublishedTensor
from cornserve.transport.protocol import MAX_METADATA_BYTES
from cornserve.transport.tensor import ProductionId, tensor_bytes
from cornserve.v1 import transfer_pb2 as pb

STREAM_WINDOW: Final = 16
"""The number of unread chunks of a stream at which its writer waits."""

_CHECKED_PUBLICATIONS: Final = 256


class Production:
    """Owns its tensors until its creator calls `release` or `revoke`.

    Raises:
        DuplicateProductionError: a production with the same id has not ended.
    """

    def __init__(
        self,
        id: ProductionId,
        age: RequestAge,
        admission: SlabAdmission,
        cache: ContentCache,
        registry: ProductionRegistry,
    ) -> None:
        self._id = id
        self._admission = admission
        self._blocks = admission.blocks
        self._cache = cache
        self._registry = registry
        self._publications: dict[str, Publication] = {}
        self._max_publications = _CHECKED_PUBLICATIONS
        """The number of publications at which unused ones are dropped."""
        self._slots: set[Slot] = set()
        """Slots that are neither published nor discarded."""
        self._charged: list[Block] = []
        """Blocks that count toward the request's quota."""
        self._has_ended = False
        registry.begin(id, self.publication)
        self._quota = admission.open_quota(age)
        self._quota.recall_callbacks.add(self._recall)
        self._share = ProductionShare(admission.shares)

    def bind_consumer(self, consumer: str, consumers: int) -> None:
        """Limits the tensors to the share of their consumer, one of several processes. A later call replaces it.

        Args:
            consumer: identifies the process.
            consumers: the number of the processes, at least 1.
        """
        if not self._has_ended:
            self._share.bind(consumer, consumers)

    async def allocate(self, output: str, nbytes: int) -> Slot:
        """Returns a slot for an output that is a single tensor. Waits for space.

        Raises:
            TensorTooLargeError: the request would exceed its quota.
            SlabError: the slab cannot be created.
            LostError: the production has ended.
        """
        return await self._allocate(output, nbytes, is_chunk=False)

    def reuse(self, output: str, key: str) -> bool:
        """Publishes the cached tensor with this key. Returns False if the cache does not contain the tensor."""
        self._check_open()
        cached = self._cache.acquire(key)
        if cached is None:
            return False
        ref = cached.ref
        self._publish(output, cached.block, ref.dtype, ref.shape, ref.metadata, is_last=True)
        return True

    def stream(self, output: str, window: int = STREAM_WINDOW) -> StreamWriter:
        """Returns a writer for an output that is a sequence of tensors.

        Args:
            window: the number of unread chunks at which the writer waits for the consumer.
        """
        publication = self.publication(output)
        publication.is_stream = True
        return StreamWriter(self, output, publication, window)

    def release(self) -> None:
        """Frees each tensor as soon as its consumers have released it. The production ends."""
        if not self._has_ended:
            self._end()
            for publication in self._publications.values():
                publication.release()

    def revoke(self, reason: str = "its producer has revoked it") -> None:
        """Frees the tensors immediately, even if consumers read them. The production ends."""
        if not self._has_ended:
            self._end()
            for publication in self._publications.values():
                publication.revoke(reason)

    def unpublished(self, outputs: Iterable[str]) -> list[str]:
        """Returns the outputs that are not complete, in alphabetical order. Empty if the production has ended, because
        its subscribers then know that their tensors are lost."""
        if self._has_ended:
            return []
        published = {output for output, publication in self._publications.items() if publication.is_complete}
        return sorted(set(outputs) - published)

    def publication(self, output: str) -> Publication:
        if output not in self._publications:
            if len(self._publications) >= self._max_publications:
                self._drop_unused_publications()
            self._publications[output] = Publication(self._blocks)
        return self._publications[output]

    def locate(self, block: Block) -> Location:
        """Returns the position of a block for other processes on this node."""
        return Location(self._blocks.slab.mapping.path, block.offset, block.nbytes, block.generation)

    def _drop_unused_publications(self) -> None:
        """Drops those of outputs that only former subscribers have named."""
        self._publications = {name: used for name, used in self._publications.items() if used.is_used}
        self._max_publications = max(_CHECKED_PUBLICATIONS, 2 * len(self._publications))

    async def _allocate(self, output: str, nbytes: int, *, is_chunk: bool) -> Slot:
        self._check_open()
        share = None if is_chunk else self._share
        block = await self._admission.allocate(self._quota, nbytes, is_chunk=is_chunk, share=share)
        if not is_chunk:
            self._charged.append(block)
        if self._has_ended:
            self._uncharge_all()
            self._blocks.release(block)
            self._check_open()
        slot = Slot(self, self._blocks.writable_buffer(block), block, output, is_chunk)
        self._slots.add(slot)
        return slot

    def _publish_slot(self, slot: Slot, dtype: str, shape: tuple[int, ...], metadata: bytes, key: str | None) -> None:
        self._check_open()
        _check_announceable(dtype, shape, metadata, slot.block.nbytes)
        self._slots.remove(slot)
        block = slot.block
        self._blocks.seal(block)
        slot.drop_buffer()
        tensor = self._publish(slot.output, block, dtype, shape, metadata, is_last=not slot.is_chunk)
        if key is not None and block.region is self._admission.common:  # the reserve has to become free soon
            self._cache.add(key, tensor)

    def _discard_slot(self, slot: Slot) -> None:
        if slot not in self._slots:
            return
        self._slots.remove(slot)
        slot.drop_buffer()
        if not slot.is_chunk:
            self._charged.remove(slot.block)
            self._admission.uncharge(self._quota, slot.block, self._share)
        self._blocks.release(slot.block)

    def _publish(
        self, output: str, block: Block, dtype: str, shape: Iterable[int], metadata: bytes, *, is_last: bool
    ) -> PublishedTensor:
        publication = self.publication(output)
        if publication.is_complete:
            self._blocks.release(block)
            raise ValueError(f"the output {output!r} has already been published")
        ref = pb.TensorRef(
            dtype=dtype,
            shape=shape,
            metadata=metadata,
            offset=block.offset,
            nbytes=block.nbytes,
            generation=block.generation,
            capability=block.capability,
            arrived_us=self._quota.age.arrived_us,
            published_us=time.time_ns() // 1000,
        )
        tensor = PublishedTensor(block, ref)
        publication.publish(tensor, is_last=is_last)
        return tensor

    def _check_open(self) -> None:
        if self._has_ended:
            raise LostError(f"invocation {self._id.invocation} of request {self._id.request_id} has ended")

    def _end(self) -> None:
        self._has_ended = True
        self._registry.end(self._id)
        self._quota.recall_callbacks.discard(self._recall)
        for slot in self._slots:
            slot.drop_buffer()
            self._blocks.release(slot.block)
        self._slots.clear()
        self._uncharge_all()
        self._share.close()
        self._admission.close_quota(self._quota)

    def _recall(self) -> None:
        """Gives up the reserve for an older request: subscribers decide, and tensors without any are revoked."""
        if not any(block.region is self._admission.reserve for block in self._charged):
            return
        recalled = [publication.recall() for publication in self._publications.values()]
        if not any(recalled) and not self._slots:
            self.revoke("an older request needs its space")

    def _uncharge_all(self) -> None:
        for block in self._charged:
            self._admission.uncharge(self._quota, block, self._share)
        self._charged.clear()


@dataclass(eq=False, slots=True)
class Slot:
    """Space for one tensor, which becomes visible to consumers when it is published."""

    _production: Production
    _buffer: memoryview | None
    block: Block
    output: str
    is_chunk: bool

    @property
    def buffer(self) -> memoryview:
        """The writable memory, page-aligned. Do not write to it after publishing.

        If the production ends first, the memory is not reused while the buffer, or anything made from it, exists. A
        copy in a thread or on a device may therefore finish.
        """
        if self._buffer is None:
            raise LostError(
                f"the slot of output {self.output!r} is published or discarded, or its production has ended"
            )
        return self._buffer

    @property
    def location(self) -> Location:
        """The position of the memory, for another process that writes to it (`SegmentWriter`).

        Keep `buffer` until that process has stopped writing: the memory is not reused meanwhile.
        """
        return self._production.locate(self.block)

    def publish(self, dtype: str, shape: tuple[int, ...], metadata: bytes = b"", key: str | None = None) -> None:
        """Announces the tensor to present and later subscribers.

        Args:
            dtype: such as "bfloat16".
            shape: the shape of the tensor, which is in the buffer in C order.
            metadata: for the consumer; the transport does not read it.
            key: identifies the content, so that later productions can `reuse` the tensor.

        Raises:
            LostError: the production has ended.
            ValueError: the output is not a stream and has already been published, or dtype and shape do not match the
                size of the slot, or the metadata exceed `MAX_METADATA_BYTES`.
        """
        self._production._publish_slot(self, dtype, shape, metadata, key)

    def discard(self) -> None:
        """Frees the space without publishing. Does nothing if the slot is published or discarded."""
        self._production._discard_slot(self)

    def drop_buffer(self) -> None:
        self._buffer = None


class StreamWriter:
    """Writes a sequence of tensors as one output, one after the other.

    Waits while `window` chunks are unread, even before a consumer has subscribed, and for space in the slab.
    """

    def __init__(self, production: Production, output: str, publication: Publication, window: int) -> None:
        self._production = production
        self._output = output
        self._publication = publication
        self._window = window
        self._is_discarded = False

    async def allocate(self, nbytes: int) -> Slot:
        """Returns a slot for a chunk. Chunks are ordered by the time when they are published."""
        await self._publication.wait_for_window(self._window)
        return await self._production._allocate(self._output, nbytes, is_chunk=True)

    async def send(
        self, data: bytes | bytearray | memoryview, dtype: str, shape: tuple[int, ...], metadata: bytes = b""
    ) -> None:
        """Publishes a copy of the data as the next chunk. Does nothing once the stream is discarded.

        Raises:
            LostError: the production has ended.
            ValueError: dtype and shape do not match the data, or the metadata exceed `MAX_METADATA_BYTES`.
        """
        source = memoryview(data).cast("B")
        _check_announceable(dtype, shape, metadata, source.nbytes)
        if self._is_discarded:
            return
        slot = await self.allocate(source.nbytes)
        if self._is_discarded:
            slot.discard()
            return
        slot.buffer[:] = source
        slot.publish(dtype, shape, metadata)

    def discard(self) -> None:
        """Frees all chunks and drops further ones, because their consumer has ended. A writer that waits continues."""
        self._is_discarded = True
        self._publication.discard()

    def close(self) -> None:
        """Ends the stream."""
        self._publication.end_stream()


def _check_announceable(dtype: str, shape: tuple[int, ...], metadata: bytes, nbytes: int) -> None:
    """Raises `ValueError` if consumers would reject the announcement of a tensor of `nbytes` bytes."""
    expected = tensor_bytes(dtype, shape)
    if expected != nbytes:
        raise ValueError(f"a tensor of dtype {dtype!r} and shape {shape} has {expected} bytes: the slot has {nbytes}")
    if len(metadata) > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata have {len(metadata)} bytes: give at most {MAX_METADATA_BYTES}")
