"""Caches tensors by the key of their content."""

from __future__ import annotations

from cornserve.transport.memory.refcounted_blocks import Block, BlockPool
from cornserve.transport.metrics import TransportMetrics
from cornserve.transport.producer.publication import PublishedTensor


class ContentCache:
    """Finds tensors by key. Keeps up to `limit` bytes without references, evicting the least recently used first."""

    def __init__(self, blocks: BlockPool, limit: int, metrics: TransportMetrics) -> None:
        self._blocks = blocks
        self._limit = limit
        self._metrics = metrics
        self._tensors: dict[str, PublishedTensor] = {}
        self._keys: dict[Block, str] = {}
        self._idle: dict[Block, None] = {}
        self._idle_bytes = 0

    def add(self, key: str, tensor: PublishedTensor) -> None:
        """Keeps the tensor. Does nothing if the key already has a tensor."""
        if self._limit and key not in self._tensors:
            self._tensors[key] = tensor
            self._keys[tensor.block] = key
            self._blocks.set_cache_owner(tensor.block, self)

    def acquire(self, key: str) -> PublishedTensor | None:
        """Returns the tensor with a new reference, or None."""
        tensor = self._tensors.get(key)
        self._metrics.record_lookup(is_hit=tensor is not None)
        if tensor is not None:
            self._remove_idle(tensor.block)
            self._blocks.retain(tensor.block)
        return tensor

    def on_idle(self, block: Block) -> None:
        self._idle[block] = None
        self._idle_bytes += block.nbytes
        while self._idle_bytes > self._limit:
            oldest = next(iter(self._idle))
            self.on_evicted(oldest)
            self._blocks.set_cache_owner(oldest, None)

    def on_evicted(self, block: Block) -> None:
        self._remove_idle(block)
        del self._tensors[self._keys.pop(block)]

    def _remove_idle(self, block: Block) -> None:
        if block in self._idle:
            del self._idle[block]
            self._idle_bytes -= block.nbytes
