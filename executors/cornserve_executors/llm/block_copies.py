"""Copies blocks of vLLM's KV cache to and from host memory.

Copies run in a thread next to the steps of the engine. On a CPU, one call copies each run of consecutive blocks of all
layers as one piece of memory. A thread that needs the interpreter lock again after each piece waits for it, up to 5 ms
each time, while the engine schedules steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from cornserve_executors.tensor_copies import copy_from_buffer, copy_stream, copy_to_buffer, dtype_name, host_tensor


class BlockCopies:
    """The blocks of the caches of all layers, in host memory layer after layer.

    Args:
        caches: the cache of each layer, with one shape and dtype.
        axis: the axis of the blocks.
    """

    def __init__(self, caches: Sequence[torch.Tensor], axis: int) -> None:
        self._caches = caches
        self._axis = axis

    @property
    def is_cuda(self) -> bool:
        return bool(self._caches[0].is_cuda)

    def shape(self, blocks: int) -> list[int]:
        """Returns the shape of that many blocks of a layer."""
        shape = list(self._caches[0].shape)
        shape[self._axis] = blocks
        return shape

    def save(self, blocks: Sequence[int], buffer: memoryview) -> None:
        """Copies blocks to host memory of their size."""
        if not self.is_cuda:
            hosts, caches = self._runs(buffer, 0, len(blocks), blocks)
            torch._foreach_copy_(hosts, caches)
            return
        parts = self._parts(buffer)
        indices = self._indices(blocks)
        for cache, part in zip(self._caches, parts, strict=True):
            with self._on_copy_stream() as stream:
                selected = cache.index_select(self._axis, indices)
                if stream is not None:
                    stream.synchronize()
            copy_to_buffer(selected, part)

    def load(self, blocks: Sequence[int], buffer: memoryview, first: int, total: int) -> None:
        """Copies blocks from host memory.

        Args:
            blocks: the blocks of the cache that receive them.
            first: the first block to copy.
            total: the number of blocks in host memory.
        """
        if not self.is_cuda:
            hosts, caches = self._runs(buffer, first, total, blocks)
            torch._foreach_copy_(caches, hosts)
            return
        parts = self._parts(buffer)
        indices = self._indices(blocks)
        for cache, part in zip(self._caches, parts, strict=True):
            source = copy_from_buffer(part, dtype_name(cache.dtype), self.shape(total), str(cache.device))
            with self._on_copy_stream() as stream:
                cache.index_copy_(self._axis, indices, source.narrow(self._axis, first, len(blocks)))
                if stream is not None:
                    stream.synchronize()

    def clear(self, blocks: Sequence[int]) -> None:
        """Sets blocks to zero."""
        indices = self._indices(blocks)
        with self._on_copy_stream() as stream:
            for cache in self._caches:
                cache.index_fill_(self._axis, indices, 0)
            if stream is not None:
                stream.synchronize()

    def _runs(
        self, buffer: memoryview, first: int, total: int, blocks: Sequence[int]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Returns host memory and the equal parts of the caches, for each layer and each run of consecutive blocks.

        Args:
            buffer: the host memory of all layers, with `total` blocks each.
            first: the block of the host memory that belongs to the first block of the cache.
        """
        runs, hosts, caches = [*_runs_of(blocks)], list[torch.Tensor](), list[torch.Tensor]()
        for cache, part in zip(self._caches, self._parts(buffer), strict=True):
            host = host_tensor(part, cache.dtype, self.shape(total))
            for start, block, count in runs:
                hosts.append(host.narrow(self._axis, first + start, count))
                caches.append(cache.narrow(self._axis, block, count))
        return hosts, caches

    def _parts(self, buffer: memoryview) -> list[memoryview]:
        """Returns the part of each layer."""
        size = buffer.nbytes // len(self._caches)
        return [buffer[layer * size : (layer + 1) * size] for layer in range(len(self._caches))]

    def _indices(self, blocks: Sequence[int]) -> torch.Tensor:
        with self._on_copy_stream():
            return torch.tensor(blocks, device=self._caches[0].device)

    def _on_copy_stream(self) -> AbstractContextManager[torch.cuda.Stream | None]:
        """Runs work of a GPU next to the kernels of the engine."""
        return copy_stream(self._caches[0].device) if self.is_cuda else nullcontext()


def _runs_of(blocks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yields the index, the first block and the length of each run of consecutive blocks."""
    start = 0
    for index in range(1, len(blocks) + 1):
        if index == len(blocks) or blocks[index] != blocks[index - 1] + 1:
            yield start, blocks[start], index - start
            start = index
