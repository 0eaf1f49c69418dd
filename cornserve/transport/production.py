"""The tensors of one invocation, from its start until nobody needs them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from cornserve.transport.admission import Account, Admission
from cornserve.transport.announcement import Published
from cornserve.transport.board import Board, Name
from cornserve.transport.content import Contents
from cornserve.transport.errors import LostError
from cornserve.transport.publication import Publication
from cornserve.transport.store import Block
from cornserve.v1 import transfer_pb2 as pb


class Production:
    """Owns what it publishes until it is released or revoked, one of which whoever has made it must do."""

    def __init__(self, name: Name, account: Account, admission: Admission, contents: Contents, board: Board) -> None:
        self._name = name
        self._account = account
        self._admission = admission
        self._store = admission.store
        self._contents = contents
        self._board = board
        self._publications: dict[str, Publication] = {}
        self._slots: set[Slot] = set()
        """Not published yet."""
        self._charged: list[Block] = []
        """What counts as the request's."""
        self._is_over = False
        board.begin(name, self)
        account.recalls.add(self._recall)

    async def allocate(self, output: str, nbytes: int) -> Slot:
        """Room for an output that is one tensor. Waits while there is none.

        Raises:
            TooLargeError: at once, if it can never fit.
            SlabError: there is no slab, and none can be made.
            LostError: the production is over.
        """
        return await self._allocate(output, nbytes, is_chunk=False)

    def reuse(self, output: str, key: str) -> bool:
        """Announces the tensor that was published with this key, if it is still there."""
        self._check_open()
        found = self._contents.find(key)
        if found is None:
            return False
        ref = found.ref
        self._publish(output, found.block, ref.dtype, ref.shape, ref.metadata, is_last=True)
        return True

    def stream(self, output: str) -> Writer:
        """An output that is a sequence of tensors."""
        self.publication(output).is_stream = True
        return Writer(self, output)

    def release(self) -> None:
        """Its owner needs the tensors no more: they go when their consumers have read them."""
        if not self._is_over:
            self._end()
            for publication in self._publications.values():
                publication.release()

    def revoke(self, reason: str = "its producer has taken it back") -> None:
        """Takes the tensors back at once, whoever reads them."""
        if not self._is_over:
            self._end()
            for publication in self._publications.values():
                publication.revoke(reason)

    def publication(self, output: str) -> Publication:
        if output not in self._publications:
            self._publications[output] = Publication(self._store)
        return self._publications[output]

    async def _allocate(self, output: str, nbytes: int, *, is_chunk: bool) -> Slot:
        self._check_open()
        block = await self._admission.take(self._account, nbytes, is_chunk=is_chunk)
        if not is_chunk:
            self._charged.append(block)
        if self._is_over:
            self._disown()
            self._store.drop(block)
            self._check_open()
        slot = Slot(self, output, block, self._store.buffer(block), is_chunk=is_chunk)
        self._slots.add(slot)
        return slot

    def _take(self, slot: Slot, dtype: str, shape: tuple[int, ...], metadata: bytes, key: str | None) -> None:
        """Publishes what has been written to the slot."""
        self._check_open()
        self._slots.remove(slot)
        block = slot.block
        self._store.seal(block)
        slot.close()
        published = self._publish(slot.output, block, dtype, shape, metadata, is_last=not slot.is_chunk)
        if key is not None and block.region is self._admission.common:  # the reserve must be free again soon
            self._contents.add(key, published)

    def _give_up(self, slot: Slot) -> None:
        if slot not in self._slots:
            return
        self._slots.remove(slot)
        slot.close()
        if not slot.is_chunk:
            self._charged.remove(slot.block)
            self._admission.disown(self._account, slot.block)
        self._store.drop(slot.block)

    def _publish(
        self, output: str, block: Block, dtype: str, shape: Iterable[int], metadata: bytes, *, is_last: bool
    ) -> Published:
        publication = self.publication(output)
        if publication.is_complete:
            self._store.drop(block)
            raise ValueError(f"the output {output!r} has been published already")
        ref = pb.TensorRef(
            dtype=dtype,
            shape=shape,
            metadata=metadata,
            offset=block.extent.offset,
            nbytes=block.extent.nbytes,
            generation=block.extent.generation,
            arrived_us=self._account.age.arrived_us,
            published_us=time.time_ns() // 1000,
        )
        published = Published(block, ref)
        publication.publish(published, is_last=is_last)
        return published

    def _check_open(self) -> None:
        if self._is_over:
            raise LostError(f"invocation {self._name.invocation} of request {self._name.request_id} is over")

    def _end(self) -> None:
        self._is_over = True
        self._board.end(self._name)
        self._account.recalls.discard(self._recall)
        for slot in self._slots:
            slot.close()
            self._store.drop(slot.block)
        self._slots.clear()
        self._disown()
        self._admission.close(self._account)

    def _recall(self) -> None:
        """An older request needs the reserve. Who has subscribed is asked; what nobody has come for yet is taken."""
        if not any(block.region is self._admission.reserve for block in self._charged):
            return
        asked = [publication.recall() for publication in self._publications.values()]
        if not any(asked) and not self._slots:
            self.revoke("an older request has needed its room")

    def _disown(self) -> None:
        for block in self._charged:
            self._admission.disown(self._account, block)
        self._charged.clear()


class Slot:
    """Room for one tensor. What has been written to it is there for others once it is published."""

    __slots__ = ("_buffer", "_production", "block", "is_chunk", "output")

    def __init__(
        self, production: Production, output: str, block: Block, buffer: memoryview, *, is_chunk: bool
    ) -> None:
        self._production = production
        self._buffer: memoryview | None = buffer
        self.block: Final = block
        self.output: Final = output
        self.is_chunk: Final = is_chunk

    @property
    def buffer(self) -> memoryview:
        """Writable, page-aligned, and yours until you publish. Then it is read, so keep nothing that writes to it.

        If the production ends first, the memory is given to nobody else while you still have the buffer, or anything
        made from it: it does no harm if a copy goes on in a thread, or on a device.
        """
        if self._buffer is None:
            raise LostError(f"the slot of output {self.output!r} is published or given up, or its production over")
        return self._buffer

    def publish(self, dtype: str, shape: tuple[int, ...], metadata: bytes = b"", key: str | None = None) -> None:
        """Announces it to those who have subscribed, or will.

        Args:
            dtype: such as "bfloat16".
            shape: of the tensor, whose bytes lie in the buffer in C order.
            metadata: whatever a consumer has to know besides.
            key: names the content: later productions may `reuse` it.

        Raises:
            LostError: the production is over.
            ValueError: the output, which is not a stream, has been published already.
        """
        self._production._take(self, dtype, shape, metadata, key)

    def give_up(self) -> None:
        """Instead of publishing it: others may have the room. Nothing happens if it is published, or given up."""
        self._production._give_up(self)

    def close(self) -> None:
        """Nothing is written to it any more, by us."""
        self._buffer = None


class Writer:
    """A sequence of tensors under one output. Waits for room while consumers are slower."""

    def __init__(self, production: Production, output: str) -> None:
        self._production = production
        self._output = output

    async def allocate(self, nbytes: int) -> Slot:
        """Room for the next chunk, which it is when its slot is published."""
        return await self._production._allocate(self._output, nbytes, is_chunk=True)

    async def send(
        self, data: bytes | bytearray | memoryview, dtype: str, shape: tuple[int, ...], metadata: bytes = b""
    ) -> None:
        """Copies the data into a slot and publishes it as the next chunk."""
        source = memoryview(data).cast("B")
        slot = await self.allocate(source.nbytes)
        slot.buffer[:] = source
        slot.publish(dtype, shape, metadata)

    def close(self) -> None:
        """There are no more chunks."""
        self._production.publication(self._output).complete()
