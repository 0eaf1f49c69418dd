"""What is in the slab: blocks, who holds them, and when their memory is free again.

A block that nobody holds may have a keeper who would like to have it a little longer (the content cache, a stream that
may get a late consumer). Such blocks are idle: the longest unused one makes room first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from cornserve.transport.allocator import Allocator
from cornserve.transport.segment import pages_of
from cornserve.transport.slab import Extent, Slab


class Keeper(Protocol):
    def on_idle(self, block: Block) -> None:
        """Nobody holds the block any more."""

    def on_evicted(self, block: Block) -> None:
        """It has made room for another."""


class Block:
    """One tensor's memory, and how many hold it."""

    __slots__ = ("extent", "keeper", "references", "region")

    def __init__(self, extent: Extent, region: Region) -> None:
        self.extent = extent
        self.region = region
        self.references = 1
        self.keeper: Keeper | None = None


class Region:
    """A part of the slab from which blocks are taken."""

    __slots__ = ("allocator", "idle", "idle_pages", "pages")

    def __init__(self, first: int, pages: int) -> None:
        self.pages = pages
        self.allocator = Allocator(first, pages)
        self.idle: dict[Block, None] = {}
        self.idle_pages = 0

    @property
    def held_pages(self) -> int:
        return self.pages - self.allocator.free - self.idle_pages


class Store:
    """Calls `on_room` whenever there may be more room than before."""

    def __init__(self, slab: Slab, on_room: Callable[[], None]) -> None:
        self.slab = slab
        self._on_room = on_room
        self._blocks: dict[int, Block] = {}

    def take(self, region: Region, nbytes: int) -> Block | None:
        """A new block, held once, if there is room; idle blocks are evicted where needed."""
        pages = pages_of(nbytes)
        if region.allocator.free + region.idle_pages < pages:
            return None
        while (page := region.allocator.take(pages)) is None:
            if not region.idle:
                return None
            self._evict(next(iter(region.idle)))
        block = Block(self.slab.extent(page, nbytes), region)
        self._blocks[block.extent.offset] = block
        return block

    def buffer(self, block: Block) -> memoryview:
        """Where to write it. Its memory is given to nobody else while anything made from this exists."""
        loop = asyncio.get_running_loop()

        def reclaim() -> None:
            with suppress(RuntimeError):  # the event loop has ended, and the slab with it
                loop.call_soon_threadsafe(self._reclaim, block)

        return self.slab.writable(block.extent, reclaim)

    def seal(self, block: Block) -> None:
        """It has been written."""
        block.extent.writer = None

    def hold(self, block: Block) -> None:
        if not block.references:
            self._take_up(block)
        block.references += 1

    def drop(self, block: Block) -> None:
        block.references -= 1
        if block.references:
            return
        if block.keeper is None:
            self._free(block)
        else:
            block.region.idle[block] = None
            block.region.idle_pages += block.extent.pages
            block.keeper.on_idle(block)
            self._on_room()

    def keep(self, block: Block, keeper: Keeper | None) -> None:
        """Who would like to have the block when nobody holds it. None: it goes with whoever holds it last."""
        block.keeper = keeper
        if keeper is None and not block.references:
            self._take_up(block)
            self._free(block)

    def find(self, offset: int, nbytes: int, generation: int) -> Block | None:
        """The block that another process knows by these."""
        block = self._blocks.get(offset)
        found = block is not None and (block.extent.nbytes, block.extent.generation) == (nbytes, generation)
        return block if found else None

    def _evict(self, block: Block) -> None:
        keeper = block.keeper
        self._take_up(block)
        self._free(block)
        if keeper is not None:
            keeper.on_evicted(block)

    def _take_up(self, block: Block) -> None:
        del block.region.idle[block]
        block.region.idle_pages -= block.extent.pages

    def _free(self, block: Block) -> None:
        self.slab.expire(block.extent)
        del self._blocks[block.extent.offset]
        if block.extent.writer is None or block.extent.writer() is None:
            self._give_back(block)

    def _reclaim(self, block: Block) -> None:
        if not block.references and block.extent.writer is not None:
            self._give_back(block)

    def _give_back(self, block: Block) -> None:
        block.extent.writer = None
        block.region.allocator.give_back(block.extent.page, block.extent.pages)
        self._on_room()
