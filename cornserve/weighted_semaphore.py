"""A semaphore whose holders acquire different amounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

from cornserve.fair_queue import FairQueue


class Reservation:
    """A weight that is held until it is released, or until the block of a `with` statement ends."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Releases the weight. Further calls do nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()


class WeightedSemaphore:
    """Bounds the total weight of its holders. Owners are admitted round-robin, whatever the weight.

    A weight above `capacity` counts as `capacity`: its holder is admitted alone.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._acquired = 0
        self._waiters = FairQueue[tuple[int, asyncio.Future[None]]]()

    async def reserve(self, weight: int, owner: Hashable) -> Reservation:
        """Waits until the weight fits. The caller releases the reservation."""
        weight = min(weight, self._capacity)
        await self._wait(weight, owner)
        return Reservation(partial(self._release, weight))

    @asynccontextmanager
    async def acquire(self, weight: int, owner: Hashable) -> AsyncIterator[None]:
        """Waits until the weight fits, and holds it until the block ends."""
        with await self.reserve(weight, owner):
            yield

    async def _wait(self, weight: int, owner: Hashable) -> None:
        admitted = asyncio.get_running_loop().create_future()
        self._waiters.push((weight, admitted), owner)
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.cancelled():
                self._admit()  # The cancelled waiter may have blocked the next waiter.
            else:
                self._release(weight)
            raise

    def _release(self, weight: int) -> None:
        self._acquired -= weight
        self._admit()

    def _admit(self) -> None:
        while self._waiters:
            weight, admitted = self._waiters.peek()
            if not admitted.cancelled():
                if self._acquired + weight > self._capacity:
                    return
                self._acquired += weight
                admitted.set_result(None)
            self._waiters.pop()
