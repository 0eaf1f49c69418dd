"""The segment of this process, which holds the tensors that it produces or pulls."""

from __future__ import annotations

import asyncio
import ctypes
import os
from contextvars import Context
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from cornserve.transport.errors import SlabError
from cornserve.transport.memory import segment
from cornserve.transport.memory.segment import PAGE, SegmentLayout, SegmentMapping


class Slab:
    """A process's slab. It is created on first use, and takes no memory before that."""

    def __init__(self, directory: Path, token: bytes, nbytes: int) -> None:
        self.layout = SegmentLayout(nbytes // PAGE)
        self.directory = directory
        self.name = segment.file_name(token)
        self._token = token
        self._mapping: SegmentMapping | None = None
        self._descriptor: int | None = None
        self._creation: asyncio.Task[None] | None = None
        self._generations = count(1)

    @property
    def is_created(self) -> bool:
        return self._mapping is not None

    @property
    def mapping(self) -> SegmentMapping:
        assert self._mapping is not None, "the slab has not been created"
        return self._mapping

    async def create(self) -> None:
        """Creates the file in a thread, which takes a second per gigabyte. Concurrent callers share the creation."""
        if self._creation is None or (self._creation.done() and not self.is_created):
            self._creation = asyncio.create_task(self._create(), context=Context())
        await asyncio.shield(self._creation)

    async def _create(self) -> None:
        try:
            self._mapping, self._descriptor = await asyncio.to_thread(
                segment.create, self.directory, self._token, self.layout.pages
            )
        except OSError as error:
            size = f"{self.layout.nbytes / 2**20:.0f} MiB"
            reason = error.strerror or str(error)
            raise SlabError(f"cannot create a slab of {size} in {self.directory}: {reason}") from error

    async def remove(self) -> None:
        """Unlinks the file. The system frees the memory when no process maps it."""
        if self._creation is not None:
            await asyncio.gather(self._creation, return_exceptions=True)
        if self._descriptor is not None:
            (self.directory / self.name).unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def assign_generation(self, page: int) -> int:
        """Marks the tensor that begins at `page` with a new generation."""
        generation = self.mapping.generations[page] = next(self._generations)
        return generation

    def clear_generation(self, page: int) -> None:
        """Makes checks of the tensor that begins at `page` fail from now on."""
        self.mapping.generations[page] = 0

    def writable(self, offset: int, nbytes: int) -> Any:
        """Returns a ctypes array over the bytes. All buffers made from the array keep it alive."""
        return _array_type(nbytes).from_buffer(self.mapping.memory, offset)


@lru_cache(maxsize=256)
def _array_type(nbytes: int) -> Any:
    return ctypes.c_ubyte * nbytes
