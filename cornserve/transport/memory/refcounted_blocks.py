"""Blocks of the slab: their references, their cache owners, and when their memory becomes free.

Memory that may still be written to is not reused: a copy of a cancelled invocation may continue in another thread or on
a device. The writable buffer is therefore a separate object, and the pages become free when it is collected. Nor is
memory that is being sent to another node, or that a pull of a library which hangs may still fill.
"""

from __future__ import annotations

import asyncio
import secrets
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from cornserve.transport.memory.allocator import PageAllocator
from cornserve.transport.memory.segment import PAGE, pages_for
from cornserve.transport.memory.slab import Slab

CAPABILITY_BYTES: Final = 16


class CacheOwner(Protocol):
    """Keeps blocks without references until their space is needed."""

    def on_idle(self, block: Block) -> None:
        """Called when the last reference has been released."""

    def on_evicted(self, block: Block) -> None:
        """Called when the block is evicted to make space."""


@dataclass(eq=False, slots=True)
class Block:
    """The memory of one tensor. The tensor is freed when it has neither references nor a cache owner."""

    region: Region
    page: int
    offset: int
    nbytes: int
    generation: int
    capability: bytes
    """Random. A process on another node that knows it may read the tensor."""
    references: int = 1
    cache_owner: CacheOwner | None = None
    writer: weakref.ref[Any] | None = None
    """The exporter of the writable buffer; None when the block is published."""
    holds: int = 0
    """Connections that send the tensor or pull it. Until they end, the memory is not reused, even if it is freed."""

    @property
    def pages(self) -> int:
        return pages_for(self.nbytes)


class Region:
    """A part of the slab. Only those of its pages that have memory can be allocated."""

    __slots__ = ("allocator", "first", "idle", "idle_pages", "pages", "untaken", "unused_checks")

    def __init__(self, first: int, pages: int) -> None:
        self.first = first
        self.pages = pages
        self.allocator = PageAllocator(first, 0)
        self.untaken = PageAllocator(first, pages)
        """The pages without memory."""
        self.idle: dict[Block, None] = {}
        """Blocks without references, the least recently used first."""
        self.idle_pages = 0
        self.unused_checks = 0
        """The number of checks by `SlabGrowth` in which no tensor has been freed."""

    @property
    def held_pages(self) -> int:
        return self.pages - self.untaken.free_pages - self.allocator.free_pages - self.idle_pages

    def clip(self, pages: range) -> range:
        """Returns those of the pages that are in this region."""
        first = max(pages.start, self.first)
        return range(first, max(first, min(pages.stop, self.first + self.pages)))


class BlockPool:
    """Calls `on_space` with a block whose space may have become available."""

    def __init__(self, slab: Slab, on_space: Callable[[Block], None]) -> None:
        self.slab = slab
        self._on_space = on_space
        self._blocks: dict[bytes, Block] = {}
        """All blocks that are not freed, by capability."""
        self._freed: set[Block] = set()
        """Freed blocks whose memory is still written to or held, so that it cannot be reused."""

    def allocate(self, region: Region, nbytes: int, *, can_evict: bool) -> Block | None:
        """Returns a new block with one reference, or None without space. Can evict idle blocks."""
        pages = pages_for(nbytes)
        if region.allocator.free_pages + region.idle_pages * can_evict < pages:
            return None
        while (page := region.allocator.allocate(pages)) is None:
            if not (can_evict and region.idle):
                return None
            self._evict(next(iter(region.idle)))
        offset = self.slab.layout.data + page * PAGE
        capability = secrets.token_bytes(CAPABILITY_BYTES)
        block = Block(region, page, offset, nbytes, self.slab.assign_generation(page), capability)
        self._blocks[capability] = block
        return block

    def writable_buffer(self, block: Block) -> memoryview:
        """Returns the memory of the block, which is not reused while anything made from the buffer exists."""
        loop = asyncio.get_running_loop()

        def on_collected(_: object) -> None:  # Runs in any thread.
            with suppress(RuntimeError):  # The event loop is closed, so the slab no longer exists.
                loop.call_soon_threadsafe(self._free_pages, block)

        exporter = self.slab.writable(block.offset, block.nbytes)
        block.writer = weakref.ref(exporter, on_collected)
        return memoryview(exporter).cast("B")

    def seal(self, block: Block) -> None:
        """Ends writing: the memory may be reused although the writable buffer still exists."""
        block.writer = None

    def hold_memory(self, block: Block) -> Callable[[], None]:
        """Keeps the memory of a block that is sent or pulled from being reused. Returns a function that ends this."""
        block.holds += 1
        return partial(self._end_hold, block)

    def retain(self, block: Block) -> None:
        if not block.references:
            self._remove_idle(block)
        block.references += 1

    def release(self, block: Block) -> None:
        block.references -= 1
        if block.references:
            return
        if block.cache_owner is None:
            self._free(block)
        else:
            block.region.idle[block] = None
            block.region.idle_pages += block.pages
            block.cache_owner.on_idle(block)
            self._on_space(block)

    def set_cache_owner(self, block: Block, owner: CacheOwner | None) -> None:
        """Sets the owner that keeps the block without references. With None, an idle block is freed."""
        block.cache_owner = owner
        if owner is None and not block.references:
            self._remove_idle(block)
            self._free(block)

    def find(self, capability: bytes) -> Block | None:
        """Returns the block that another process may read, or None if it has been freed."""
        return self._blocks.get(capability)

    def _evict(self, block: Block) -> None:
        owner = block.cache_owner
        self._remove_idle(block)
        self._free(block)
        if owner is not None:
            owner.on_evicted(block)

    def _remove_idle(self, block: Block) -> None:
        del block.region.idle[block]
        block.region.idle_pages -= block.pages

    def _free(self, block: Block) -> None:
        self.slab.clear_generation(block.page)
        del self._blocks[block.capability]
        self._freed.add(block)
        self._free_pages(block)

    def _end_hold(self, block: Block) -> None:
        block.holds -= 1
        self._free_pages(block)

    def _free_pages(self, block: Block) -> None:
        """Frees the pages of a freed block unless they are still written to or held."""
        is_written = block.writer is not None and block.writer() is not None
        if block in self._freed and not is_written and not block.holds:
            self._freed.remove(block)
            block.region.allocator.free(block.page, block.pages)
            self._on_space(block)
