"""Where images are opened: off the event loop, so many pixels at a time, and the small ones apart from the large ones.

A large image takes a second and a gigabyte, a small one next to nothing of either. So large ones have a room of their
own, and leave a core to the small ones, which never wait for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from cornserve_executors.media.weighted_semaphore import WeightedSemaphore

Result = TypeVar("Result")

MAX_SMALL_IMAGES = 3
"""Of the largest that are small, at once: one that is being used, one that is ready, one that is being opened."""

MAX_LARGE_PIXELS = 64_000_000
"""Of all that are large, at once. What has more has that room to itself."""


class DecodePool:
    def __init__(self, name: str, pixels: int, threads: int, begin_thread: Callable[[], None]) -> None:
        self._room = WeightedSemaphore(pixels)
        self._threads = ThreadPoolExecutor(threads, name, begin_thread)

    @asynccontextmanager
    async def enter(self, pixels: int, owner: Hashable) -> AsyncIterator[DecodePool]:
        """Waits until so many pixels may be open. Owners enter in turns."""
        async with self._room.take(pixels, owner):
            yield self

    async def run(self, work: Callable[[], Result]) -> Result:
        """In a thread. Whoever is cancelled waits for what has begun: it takes memory as long as it goes on."""
        job = self._threads.submit(work)
        done = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.wait({done})
            raise

    def shutdown(self) -> None:
        """Blocks until what has begun is done."""
        self._threads.shutdown(cancel_futures=True)


class DecodePools:
    """The lane of the small images, and that of the large ones.

    Args:
        small_pixels: what has no more than these is small.
        begin_thread: runs first in each thread.
    """

    def __init__(self, small_pixels: int, begin_thread: Callable[[], None] = lambda: None) -> None:
        cores = len(os.sched_getaffinity(0))
        self._small_pixels = small_pixels
        self._small = DecodePool("small-images", MAX_SMALL_IMAGES * small_pixels, cores, begin_thread)
        self._large = DecodePool("large-images", MAX_LARGE_PIXELS, max(1, cores - 1), begin_thread)

    def pool_for(self, pixels: int) -> DecodePool:
        return self._small if pixels <= self._small_pixels else self._large

    def shutdown(self) -> None:
        self._small.shutdown()
        self._large.shutdown()
