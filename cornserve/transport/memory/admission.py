"""Divides the slab among requests when it is full.

A request may hold one tensor while it waits for space for the next, so requests could wait for one another forever.
Three rules prevent it:

* Space goes to the oldest request first. The age is the arrival time, then the id, so all processes agree on the order.
* The reserve, a part of the slab, is as large as the quota of a request. Only the oldest request that produces here may
  start to use it. It can therefore continue and end whatever the others hold, and another request becomes the oldest.
* The reserve may serve a younger request when an older one arrives. The younger one may wait for the older one in
  another process, whose reserve the older one has. Its tensors in the reserve are therefore recalled: each holder that
  has not started to use them releases them. They are produced again.

docs/reference/transport.md argues that this cannot deadlock.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from cornserve.observe.histogram import Histogram
from cornserve.transport.errors import TensorTooLargeError
from cornserve.transport.memory.refcounted_blocks import Block, BlockPool, Region
from cornserve.transport.memory.segment import PAGE, pages_for
from cornserve.transport.memory.slab import Slab

RECALL_SECONDS = 1.0
"""Time for which an older request waits before the reserve is recalled. Most holders end within it."""


class RequestAge(NamedTuple):
    """Orders requests: the smallest goes first."""

    arrived_us: int
    request_id: str


@dataclass(eq=False, slots=True)
class RequestQuota:
    """The use of this slab by one request."""

    age: RequestAge
    users: int = 0
    """Productions and pulls that may allocate more."""
    charged_pages: int = 0
    recall_callbacks: set[Callable[[], None]] = field(default_factory=set)
    """Callbacks that each request one holder to release its space in the reserve."""


@dataclass(order=True, slots=True)
class _Waiter:
    age: RequestAge
    number: int
    quota: RequestQuota = field(compare=False)
    nbytes: int = field(compare=False)
    block: asyncio.Future[Block] = field(compare=False)


class SlabAdmission:
    """Allocates blocks of one slab to requests.

    Args:
        request_bytes: the quota of each request, and the size of the reserve.

    Raises:
        ValueError: the slab is smaller than `request_bytes`.
    """

    def __init__(self, slab: Slab, request_bytes: int) -> None:
        pages, reserved = slab.layout.pages, pages_for(request_bytes)
        if not 0 < reserved <= pages:
            raise ValueError(f"a slab of {pages * PAGE} bytes cannot hold requests of {request_bytes} bytes")
        self.blocks = BlockPool(slab, self._serve_soon)
        self.common = Region(0, pages - reserved)
        self.reserve = Region(pages - reserved, reserved)
        self.wait_seconds = Histogram()
        self._quotas: dict[RequestAge, RequestQuota] = {}
        self._ages: list[RequestAge] = []
        """Sorted, oldest first."""
        self._reserve_user: RequestQuota | None = None
        """The only request that may allocate in the reserve while any of it is held."""
        self._waiters: list[_Waiter] = []
        """Sorted, oldest first."""
        self._numbers = count()
        self._serve_handle: asyncio.Handle | None = None
        self._recall_handle: asyncio.Handle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def open_quota(self, age: RequestAge) -> RequestQuota:
        """Enables allocation for the request. Each call requires a matching call of `close_quota`."""
        quota = self._quotas.get(age)
        if quota is None:
            quota = self._quotas[age] = RequestQuota(age)
            insort(self._ages, age)
        quota.users += 1
        return quota

    def close_quota(self, quota: RequestQuota) -> None:
        quota.users -= 1
        if not quota.users:
            del self._quotas[quota.age]
            del self._ages[bisect_left(self._ages, quota.age)]
            self._serve_soon()  # another request may be the oldest now

    async def allocate(self, quota: RequestQuota, nbytes: int, *, is_chunk: bool = False) -> Block:
        """Returns a block with one reference. Waits for space.

        Args:
            is_chunk: the block is part of a stream and is not charged: consumed chunks make space for it.

        Raises:
            TensorTooLargeError: the request would exceed its quota.
            SlabError: the slab cannot be created.
        """
        if nbytes < 1:
            raise ValueError("cannot allocate a tensor of 0 bytes")
        charge = 0 if is_chunk else pages_for(nbytes)
        wanted = pages_for(nbytes) + (0 if is_chunk else quota.charged_pages)
        if wanted > self.reserve.pages:
            raise TensorTooLargeError(f"request {quota.age.request_id}", wanted * PAGE, self.reserve.pages * PAGE)
        quota.charged_pages += charge
        try:
            if not self.blocks.slab.is_created:
                await self.blocks.slab.create()
            return (not self._waiters and self._try_allocate(quota, nbytes)) or await self._wait(quota, nbytes)
        except BaseException:
            quota.charged_pages -= charge
            raise

    def uncharge(self, quota: RequestQuota, block: Block) -> None:
        """Stops counting the block as the request's. Consumers may still hold it."""
        quota.charged_pages -= block.pages

    async def _wait(self, quota: RequestQuota, nbytes: int) -> Block:
        block: asyncio.Future[Block] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(quota.age, next(self._numbers), quota, nbytes, block)
        insort(self._waiters, waiter)
        started = time.perf_counter()
        try:
            self._serve()
            return await block
        except asyncio.CancelledError:
            if block.done() and not block.cancelled():
                self.blocks.release(block.result())
            else:
                self._waiters.remove(waiter)
                self._serve_soon()
            raise
        finally:
            self.wait_seconds.observe(time.perf_counter() - started)

    def _serve_soon(self) -> None:
        if self._waiters and self._serve_handle is None:
            self._serve_handle = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Allocates for waiters, strictly by age. A blocked older waiter does not block the user of the reserve."""
        self._serve_handle = None
        is_blocked = False
        for waiter in [waiter for waiter in self._waiters if not waiter.block.done()]:
            allocate = self._try_allocate_in_reserve if is_blocked else self._try_allocate
            block = allocate(waiter.quota, waiter.nbytes)
            if block is None:
                is_blocked = True
            else:
                self._waiters.remove(waiter)
                waiter.block.set_result(block)
        self._schedule_recall()

    def _try_allocate(self, quota: RequestQuota, nbytes: int) -> Block | None:
        return self.blocks.allocate(self.common, nbytes) or self._try_allocate_in_reserve(quota, nbytes)

    def _try_allocate_in_reserve(self, quota: RequestQuota, nbytes: int) -> Block | None:
        if not self.reserve.held_pages:
            self._reserve_user = self._quotas[self._ages[0]] if self._ages else None
        return self.blocks.allocate(self.reserve, nbytes) if quota is self._reserve_user else None

    def _schedule_recall(self) -> None:
        if self._recall_handle is None and self._is_recall_needed:
            self._recall_handle = asyncio.get_running_loop().call_later(RECALL_SECONDS, self._recall)

    def _recall(self) -> None:
        self._recall_handle = None
        if self._reserve_user is not None and self._is_recall_needed:
            for recall in list(self._reserve_user.recall_callbacks):
                recall()
        self._schedule_recall()

    @property
    def _is_recall_needed(self) -> bool:
        """Whether the oldest request waits while the reserve serves another."""
        oldest_waits = bool(self._waiters) and self._waiters[0].age == self._ages[0]
        return oldest_waits and self.reserve.held_pages > 0 and self._reserve_user is not self._waiters[0].quota
