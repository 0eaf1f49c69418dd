"""The segment of this process, which holds the tensors that it produces or pulls."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
from contextvars import Context
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from cornserve.transport.errors import SlabError
from cornserve.transport.memory import segment
from cornserve.transport.memory.segment import PAGE, SegmentLayout, SegmentMapping

log = logging.getLogger(__name__)


class Slab:
    """A process's slab. It takes no memory before it is created.

    If it does not fit into the directory, it is private: other processes then pull its tensors.
    """

    def __init__(self, directory: Path, token: bytes, nbytes: int) -> None:
        self.layout = SegmentLayout(nbytes // PAGE)
        self.directory = directory
        self.name = segment.file_name(token)
        self._token = token
        self._mapping: SegmentMapping | None = None
        self._descriptor: int | None = None
        self._creation: asyncio.Task[None] | None = None
        self._generations = count(1)
        self.is_private = False
        """Whether other processes cannot map the slab, because it could not be created in the directory."""

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
            self._mapping, self._descriptor = await asyncio.to_thread(self._create_segment)
        except OSError as error:
            size = f"{self.layout.nbytes / 2**20:.0f} MiB"
            raise SlabError(f"cannot create a slab of {size}: {error.strerror or error}") from error

    def _create_segment(self) -> tuple[SegmentMapping, int]:
        """Falls back to private memory. Raises `OSError` if the memory does not suffice for this, either."""
        try:
            return self._create_shared()
        except OSError as error:
            created = segment.create_private(self._token, self.layout.pages)
            self.is_private = True
            log.warning(
                "cannot create %d MiB of shared memory in %s: %s: other processes pull the tensors of this one over "
                "the network. Check the size of the file system and the permissions of the directory",
                *(self.layout.nbytes >> 20, self.directory, error.strerror or error),
            )
            return created

    def _create_shared(self) -> tuple[SegmentMapping, int]:
        try:
            return segment.create(self.directory, self._token, self.layout.pages)
        except OSError as error:
            if error.errno != errno.ENOSPC or not segment.reap(self.directory):
                raise
        return segment.create(self.directory, self._token, self.layout.pages)

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
        array = _array_type(nbytes).from_buffer(self.mapping.memory, offset)
        array.segment_memory = self.mapping.memory
        return array


@lru_cache(maxsize=256)
def _array_type(nbytes: int) -> Any:
    return ctypes.c_ubyte * nbytes
