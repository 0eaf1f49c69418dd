"""Divides the slab among requests when it is full.

A request may hold one tensor while it waits for space for the next, so requests could wait for one another forever.
Three rules prevent it, and one limits the memory of a consumer:

* Space goes to the oldest request first. The age is the arrival time, then the id, so all processes agree on the order.
* The reserve, a part of the slab, is as large as the quota of a request. Only the oldest request that produces here may
  start to use it. It can therefore continue and end whatever the others hold, and another request becomes the oldest.
* The tensors for one consumer use at most its share of the rest (`ConsumerShares`). One that waits for its share does
  not block younger ones for other consumers.
* The reserve may serve a younger request when an older one arrives. The younger one may wait for the older one in
  another process, whose reserve the older one has. Its tensors in the reserve are therefore recalled: each holder that
  has not started to use them releases them. They are produced again.

Space also needs memory, which the slab takes when it is needed. When the system is full, a request waits while tensors
of others may end. The oldest request does not wait for younger ones: it fails.

docs/reference/transport.md argues that this cannot deadlock.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from cornserve.observe.histogram import Histogram
from cornserve.transport.errors import SlabError, TensorTooLargeError
from cornserve.transport.memory.consumer_shares import ConsumerShares, ProductionShare
from cornserve.transport.memory.growth import SlabGrowth
from cornserve.transport.memory.refcounted_blocks import Block, BlockPool, Region
from cornserve.transport.memory.segment import PAGE, pages_for
from cornserve.transport.memory.slab import Slab

RECALL_SECONDS = 1.0
"""Time for which an older request waits before the reserve is recalled. Most holders end within it."""

IDLE_SECONDS = 60.0
"""Time after which unused memory is given back."""


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
    share: ProductionShare | None = field(compare=False)
    block: asyncio.Future[Block] = field(compare=False)
    started: float = field(compare=False)


class SlabAdmission:
    """Allocates blocks of one slab to requests.

    Args:
        request_bytes: the quota of each request, and the size of the reserve.
        idle_seconds: see `SlabGrowth`.

    Raises:
        ValueError: the slab is smaller than `request_bytes`.
    """

    def __init__(self, slab: Slab, request_bytes: int, idle_seconds: float = IDLE_SECONDS) -> None:
        pages, reserved = slab.layout.pages, pages_for(request_bytes)
        if not 0 < reserved <= pages:
            raise ValueError(f"a slab of {pages * PAGE} bytes cannot hold requests of {request_bytes} bytes")
        self.blocks = BlockPool(slab, self._on_space)
        self.common = Region(0, pages - reserved)
        self.reserve = Region(pages - reserved, reserved)
        self.shares = ConsumerShares(self.common.pages, self._serve_soon)
        self.growth = SlabGrowth(slab, (self.common, self.reserve), self._serve_soon, idle_seconds)
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

    async def allocate(
        self, quota: RequestQuota, nbytes: int, *, is_chunk: bool = False, share: ProductionShare | None = None
    ) -> Block:
        """Returns a block with one reference. Waits for space.

        Args:
            share: limits the block to the common part's share of a consumer, and counts it there.
            is_chunk: the block is part of a stream and is not charged: consumed chunks make space for it.

        Raises:
            TensorTooLargeError: the request would exceed its quota.
            SlabError: the slab cannot be created, or the system has no memory and no tensor will free some.
        """
        if nbytes < 1:
            raise ValueError("cannot allocate a tensor of 0 bytes")
        charge = 0 if is_chunk else pages_for(nbytes)
        wanted = pages_for(nbytes) + (0 if is_chunk else quota.charged_pages)
        if wanted > self.reserve.pages:
            raise TensorTooLargeError(f"request {quota.age.request_id}", wanted * PAGE, self.reserve.pages * PAGE)
        quota.charged_pages += charge
        try:
            if not self.growth.is_started:
                await self.growth.start()
            block = None if self._waiters else self._try_allocate(quota, nbytes, share)
            return block or await self._wait(quota, nbytes, share)
        except BaseException:
            quota.charged_pages -= charge
            raise

    def uncharge(self, quota: RequestQuota, block: Block, share: ProductionShare | None = None) -> None:
        """Stops counting the block as the request's, and as a consumer's. Consumers may still hold it."""
        quota.charged_pages -= block.pages
        self._uncharge_share(share, block)

    def _uncharge_share(self, share: ProductionShare | None, block: Block) -> None:
        if share is not None and block.region is self.common:
            share.charge(-block.pages)

    async def _wait(self, quota: RequestQuota, nbytes: int, share: ProductionShare | None) -> Block:
        loop = asyncio.get_running_loop()
        block: asyncio.Future[Block] = loop.create_future()
        started = loop.time()
        waiter = _Waiter(quota.age, next(self._numbers), quota, nbytes, share, block, started)
        insort(self._waiters, waiter)
        try:
            self._serve()
            return await block
        except asyncio.CancelledError:
            if block.done() and not block.cancelled() and block.exception() is None:
                self._uncharge_share(share, block.result())
                self.blocks.release(block.result())
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._serve_soon()
            raise
        finally:
            self.wait_seconds.observe(loop.time() - started)

    def _serve_soon(self) -> None:
        if self._waiters and self._serve_handle is None:
            self._serve_handle = asyncio.get_running_loop().call_soon(self._serve)

    def _on_space(self, block: Block) -> None:
        self.growth.on_freed(block)
        self._serve_soon()

    def _serve(self) -> None:
        """Allocates for waiters, strictly by age. A blocked older waiter does not block the user of the reserve. One
        that waits for its consumer's share blocks no other."""
        self._serve_handle = None
        is_blocked = False
        for waiter in [waiter for waiter in self._waiters if not waiter.block.done()]:
            is_limited = not _is_allowed(waiter.share, waiter.nbytes)
            is_reserve_only = is_blocked or is_limited
            if is_reserve_only:
                block = self._try_allocate_in_reserve(waiter.quota, waiter.nbytes)
            else:
                block = self._try_allocate(waiter.quota, waiter.nbytes, waiter.share)
            if block is not None:
                self._waiters.remove(waiter)
                waiter.block.set_result(block)
            elif error := self._find_error(waiter, is_reserve_only=is_reserve_only):
                self._waiters.remove(waiter)
                waiter.block.set_exception(error)
            elif not is_limited:
                is_blocked = True
        self._schedule_recall()

    def _find_error(self, waiter: _Waiter, *, is_reserve_only: bool) -> SlabError | None:
        """Requests the memory for a waiter. Returns an error if the system is full, and waiting may not help."""
        pages = pages_for(waiter.nbytes)
        has_addresses = not is_reserve_only and self.growth.request(self.common, pages)
        if not has_addresses and self._may_use_reserve(waiter.quota):
            has_addresses = self.growth.request(self.reserve, pages)
        error = self.growth.error
        if not has_addresses or error is None or self.growth.failed_at < waiter.started:
            return None  # other tensors have the addresses, or memory is being taken
        waited = asyncio.get_running_loop().time() - waiter.started
        is_oldest = waiter.age == self._ages[0] and waited >= RECALL_SECONDS
        if self.common.held_pages + self.reserve.held_pages and not is_oldest:
            return None
        where = self.blocks.slab.directory
        return SlabError(f"no memory for a tensor of {waiter.nbytes} bytes in {where}: {error.strerror or error}")

    def _try_allocate(self, quota: RequestQuota, nbytes: int, share: ProductionShare | None) -> Block | None:
        block = self._allocate_in(self.common, nbytes) if _is_allowed(share, nbytes) else None
        if block is not None and share is not None:
            share.charge(block.pages)
        return block or self._try_allocate_in_reserve(quota, nbytes)

    def _try_allocate_in_reserve(self, quota: RequestQuota, nbytes: int) -> Block | None:
        return self._allocate_in(self.reserve, nbytes) if self._may_use_reserve(quota) else None

    def _may_use_reserve(self, quota: RequestQuota) -> bool:
        if not self.reserve.held_pages:
            self._reserve_user = self._quotas[self._ages[0]] if self._ages else None
        return quota is self._reserve_user

    def _allocate_in(self, region: Region, nbytes: int) -> Block | None:
        """Takes more memory before it evicts idle blocks."""
        block = self.blocks.allocate(region, nbytes, can_evict=False)
        if block is None and region.idle and not self.growth.can_grow(region, pages_for(nbytes)):
            block = self.blocks.allocate(region, nbytes, can_evict=True)
        if block is not None:
            self.growth.keep_ahead(region)
        return block

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


def _is_allowed(share: ProductionShare | None, nbytes: int) -> bool:
    return share is None or share.allows(pages_for(nbytes))
