"""The segment of this process, which holds the tensors that it produces or pulls."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from cornserve.transport.errors import SlabError
from cornserve.transport.memory import segment
from cornserve.transport.memory.segment import PAGE, SegmentLayout, SegmentMapping

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Slab:
    """A process's slab. It takes no memory before it is created, and then memory for its steps.

    If it cannot be created in the directory, it is private: other processes then pull its tensors.
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="slab")
        """Takes memory and gives it back."""
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
        """Creates the file, with memory for the first step. Concurrent callers share the creation.

        Raises:
            SlabError: the machine is full.
        """
        if self._creation is None or (self._creation.done() and not self.is_created):
            self._creation = asyncio.create_task(self._create(), context=Context())
        await asyncio.shield(self._creation)

    async def _create(self) -> None:
        try:
            self._mapping, self._descriptor = await self._run(self._create_segment)
        except OSError as error:
            raise SlabError(f"cannot create a slab: {error.strerror or error}") from error

    def _create_segment(self) -> tuple[SegmentMapping, int]:
        """Falls back to private memory. Raises `OSError` if the memory does not suffice for this, either."""
        try:
            return self._create_shared()
        except OSError as error:
            created = segment.create_private(self._token, self.layout.pages)
            self.is_private = True
            log.warning(
                "cannot create shared memory in %s: %s: other processes pull the tensors of this one over the network. "
                "Check the size of the file system and the permissions of the directory",
                *(self.directory, error.strerror or error),
            )
            return created

    def _create_shared(self) -> tuple[SegmentMapping, int]:
        return self._after_reaping(lambda: segment.create(self.directory, self._token, self.layout.pages))

    async def take(self, step: int, on_pages: Callable[[range], None]) -> None:
        """Takes memory for a step.

        Args:
            on_pages: called in the event loop with each part of the step that can be used.

        Raises:
            OSError: the file system or the memory is full.
        """
        loop = asyncio.get_running_loop()
        await self._run(self._take, step, lambda pages: loop.call_soon_threadsafe(on_pages, pages))

    async def give_back(self, step: int) -> bool:
        """Frees the memory of a step without tensors. Returns False if other processes may read it.

        Raises:
            OSError: the file system cannot do this.
        """
        return await self._run(segment.free_step, self._open_descriptor, self.mapping, step)

    async def remove(self) -> None:
        """Unlinks the file. The system frees the memory when no process maps it."""
        if self._creation is not None:
            await asyncio.gather(self._creation, return_exceptions=True)
        self._thread.shutdown()
        if self._descriptor is not None:
            (self.directory / self.name).unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def resident_bytes(self) -> int:
        """The memory that the slab has taken. Can be called in any thread."""
        try:
            return os.fstat(self._open_descriptor).st_blocks * 512
        except (SlabError, OSError):  # it is not created, or is removed at the same time
            return 0

    @property
    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise SlabError("the slab is not created")
        return self._descriptor

    def _take(self, step: int, on_pages: Callable[[range], object]) -> None:
        self._after_reaping(lambda: segment.allocate_step(self._open_descriptor, self.layout, step))
        for pages in segment.pieces(self.layout.step_pages(step)):
            self.mapping.populate(pages)
            on_pages(pages)

    def _after_reaping(self, work: Callable[[], Result]) -> Result:
        """Runs `work` again if the directory was full, and segments of dead processes have been removed from it."""
        try:
            return work()
        except OSError as error:
            if error.errno != errno.ENOSPC or not segment.reap(self.directory):
                raise
        return work()

    async def _run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments))

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
