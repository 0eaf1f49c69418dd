"""This process's segment, as the producer sees it: slots that are taken, written, and given up.

Pages that somebody may still be writing to are not given to anybody else: a cancelled invocation's copy may go on in
another thread, or on a device. So the writable buffer is an object of its own, and the pages are free when it is gone.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import weakref
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from cornserve.transport import segment
from cornserve.transport.errors import SlabError
from cornserve.transport.segment import PAGE, Mapping


@dataclass(eq=False, slots=True)
class Extent:
    """Pages that hold one tensor."""

    page: int
    pages: int
    offset: int
    nbytes: int
    generation: int
    writer: weakref.ref[Any] | None = None
    """What exports the writable buffer, as long as it is not published."""


class Slab:
    """Costs nothing until it is made, on first use."""

    def __init__(self, directory: Path, token: bytes, nbytes: int) -> None:
        self.pages = nbytes // PAGE
        self.path = directory / segment.name_of(token)
        self._token = token
        self._mapping: Mapping | None = None
        self._descriptor: int | None = None
        self._making: asyncio.Task[None] | None = None
        self._generations = count(1)

    @property
    def is_made(self) -> bool:
        return self._mapping is not None

    async def make(self) -> None:
        """Takes a second for each gigabyte, in a thread. Who comes meanwhile waits for the same."""
        if self._making is None or (self._making.done() and not self.is_made):
            self._making = asyncio.create_task(self._make(), context=Context())
        await asyncio.shield(self._making)

    async def _make(self) -> None:
        try:
            self._mapping, self._descriptor = await asyncio.to_thread(
                segment.create, self.path.parent, self._token, self.pages
            )
        except OSError as error:
            size = f"{segment.Layout(self.pages).nbytes / 2**20:.0f} MiB"
            reason = error.strerror or str(error)
            raise SlabError(f"cannot make a slab of {size} in {self.path.parent}: {reason}") from error

    async def remove(self) -> None:
        """Unlinks it. The memory itself is freed when nobody maps it any more."""
        if self._making is not None:
            await asyncio.gather(self._making, return_exceptions=True)
        if self._descriptor is not None:
            self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def mapping(self) -> Mapping:
        assert self._mapping is not None, "the slab has not been made"
        return self._mapping

    def extent(self, page: int, nbytes: int) -> Extent:
        """Makes the pages from `page` on a tensor's, by a generation that none has had."""
        generation = next(self._generations)
        self.mapping.generations[page] = generation
        offset = self.mapping.layout.data + page * PAGE
        return Extent(page, segment.pages_of(nbytes), offset, nbytes, generation)

    def writable(self, extent: Extent, when_gone: Callable[[], None]) -> memoryview:
        """Its bytes. `when_gone` is called once neither this nor anything made from it exists, in any thread."""
        exporter = _bytes_type(extent.nbytes).from_buffer(self.mapping.memory, extent.offset)
        extent.writer = weakref.ref(exporter, lambda _: when_gone())
        return memoryview(exporter).cast("B")

    def expire(self, extent: Extent) -> None:
        """From now on, whoever reads there finds that it is not the tensor any more."""
        self.mapping.generations[extent.page] = 0


@lru_cache(maxsize=256)
def _bytes_type(nbytes: int) -> Any:
    return ctypes.c_ubyte * nbytes
