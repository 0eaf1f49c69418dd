"""Copies blocks of vLLM's KV cache to and from host memory.

Copies run in a thread next to the steps of the engine. On a CPU, numpy copies each run of consecutive blocks as one
piece of memory, in the time of a plain copy, and without the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from cornserve_executors.tensor_copies import copy_from_buffer, copy_stream, copy_to_buffer, dtype_name


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
        parts = self._parts(buffer)
        if not self.is_cuda:
            for target, source in self._runs(parts, 0, len(blocks), blocks):
                np.copyto(target, source)
            return
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
        parts = self._parts(buffer)
        if not self.is_cuda:
            for source, target in self._runs(parts, first, total, blocks):
                np.copyto(target, source)
            return
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
        self, parts: Sequence[memoryview], first: int, total: int, blocks: Sequence[int]
    ) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]]:
        """Yields host memory and the equal part of a cache, for each layer and each run of consecutive blocks.

        Args:
            parts: the host memory of the layers, with `total` blocks each.
            first: the block of the host memory that belongs to the first block of the cache.
        """
        runs, axes = [*_runs_of(blocks)], (slice(None),) * self._axis
        for cache, part in zip(self._bytes, parts, strict=True):
            shape = list(cache.shape)
            shape[self._axis] = total
            host = np.frombuffer(part, np.uint8).reshape(shape)
            for start, block, count in runs:
                begin = first + start
                yield host[*axes, begin : begin + count], cache[*axes, block : block + count]

    @cached_property
    def _bytes(self) -> list[npt.NDArray[np.uint8]]:
        """The memory of the caches of a CPU."""
        return [cache.view(torch.uint8).numpy() for cache in self._caches]

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
