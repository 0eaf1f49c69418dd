"""Thread pools that decode media. They bound the number of decoded pixels and samples, separately for small and large.

A large image takes a second and a gigabyte to decode, a small one almost nothing. Large media therefore have a pool
with a separate limit, which uses one core less and has a lower priority: small media never wait for large ones.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from cornserve.weighted_semaphore import Reservation, WeightedSemaphore
from cornserve_executors.media.cancellation import run_cancellable

Result = TypeVar("Result")

SMALL_PIXELS = 4_000_000
"""Media with at most this number of decoded pixels or samples are small, by default."""

MAX_SMALL_IMAGES = 3
"""Maximum number of full-size small images that are decoded at once: one in use, one ready, one in progress."""

MAX_LARGE_PIXELS = 64_000_000
"""Total pixels of the large images that are decoded at once. An image with more pixels is decoded alone."""

LARGE_NICENESS = 5
"""The niceness that threads for large media add to that of the process. When all cores are busy, such a thread gets
about a third of the time of another thread (sched(7)): less would starve large media on a busy machine."""


class DecodePool:
    """A thread pool with a limit on the pixels that its users hold.

    Args:
        pixels: the limit.
        initialize_thread: runs first in each thread.
    """

    def __init__(self, name: str, pixels: int, threads: int, initialize_thread: Callable[[], None]) -> None:
        self._pixels = WeightedSemaphore(pixels)
        self._threads = ThreadPoolExecutor(threads, name, initialize_thread)

    @asynccontextmanager
    async def acquire(self, pixels: int, owner: Hashable) -> AsyncIterator[DecodePool]:
        """Waits until `pixels` are available, and holds them until the block ends. Owners are served round-robin."""
        with await self.reserve(pixels, owner):
            yield self

    async def reserve(self, pixels: int, owner: Hashable) -> Reservation:
        """Waits until `pixels` are available, like `acquire`. The caller releases the reservation."""
        return await self._pixels.reserve(pixels, owner)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Runs `work` in a thread. If cancelled, waits for work that has started, because it still uses memory.

        Such work ends at its next `raise_if_cancelled`.
        """
        cancelled = threading.Event()
        job = self._threads.submit(run_cancellable, work, cancelled)
        done = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            cancelled.set()
            if not job.cancel():
                while not done.done():  # A further cancellation does not end the wait.
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait({done})
                done.exception()  # Retrieved, so that asyncio does not warn.
            raise

    def shutdown(self) -> None:
        """Drops queued work. Blocks until work that has started is done."""
        self._threads.shutdown(cancel_futures=True)


class DecodePools:
    """A pool for small media and a pool for large ones.

    Args:
        small_pixels: the largest number of pixels or samples of a small medium.
        initialize_thread: runs first in each thread.
    """

    def __init__(self, small_pixels: int = SMALL_PIXELS, initialize_thread: Callable[[], None] = lambda: None) -> None:
        cores = len(os.sched_getaffinity(0))
        self._small_pixels = small_pixels

        def initialize_large() -> None:
            os.nice(LARGE_NICENESS)  # On Linux, this affects only the calling thread.
            initialize_thread()

        self._small = DecodePool("small-media", MAX_SMALL_IMAGES * small_pixels, cores, initialize_thread)
        self._large = DecodePool("large-media", MAX_LARGE_PIXELS, max(1, cores - 1), initialize_large)

    def pool_for(self, pixels: int) -> DecodePool:
        """Returns the pool for a medium.

        Args:
            pixels: the pixels or samples that are decoded, including those that are not kept.
        """
        return self._small if pixels <= self._small_pixels else self._large

    def shutdown(self) -> None:
        self._small.shutdown()
        self._large.shutdown()
