"""Tensors that stay when nobody holds them, because the same content may be asked for again."""

from __future__ import annotations

from cornserve.transport.announcement import Published
from cornserve.transport.store import Block, Store


class Contents:
    """Finds tensors by the key of their content. Keeps up to `limit` bytes that nobody holds."""

    def __init__(self, store: Store, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._tensors: dict[str, Published] = {}
        self._keys: dict[Block, str] = {}
        self._idle: dict[Block, None] = {}
        """The longest unused first."""
        self._idle_bytes = 0
        self.hits = 0
        self.misses = 0

    def add(self, key: str, tensor: Published) -> None:
        """A key has one tensor; a second one of the same content goes when nobody holds it."""
        if self._limit and key not in self._tensors:
            self._tensors[key] = tensor
            self._keys[tensor.block] = key
            self._store.keep(tensor.block, self)

    def find(self, key: str) -> Published | None:
        """The tensor, held once more."""
        tensor = self._tensors.get(key)
        if tensor is None:
            self.misses += 1
            return None
        self.hits += 1
        self._take_up(tensor.block)
        self._store.hold(tensor.block)
        return tensor

    def on_idle(self, block: Block) -> None:
        self._idle[block] = None
        self._idle_bytes += block.extent.nbytes
        while self._idle_bytes > self._limit:
            self._forget(next(iter(self._idle)))

    def on_evicted(self, block: Block) -> None:
        self._take_up(block)
        del self._tensors[self._keys.pop(block)]

    def _forget(self, block: Block) -> None:
        self.on_evicted(block)
        self._store.keep(block, None)

    def _take_up(self, block: Block) -> None:
        if block in self._idle:
            del self._idle[block]
            self._idle_bytes -= block.extent.nbytes
