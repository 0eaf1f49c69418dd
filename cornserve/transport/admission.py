"""Who gets room in the slab when there is not enough for all.

Requests hold one tensor while they wait for the next, so they could all wait for one another. Two things prevent it:

* Room goes to the oldest request first. Age is when the request arrived, then its id, so all processes agree about it.
* A part of the slab, the reserve, holds all that one request may have, and is only for the oldest of the requests that
  still produce here. Whatever the others hold, that one gets on, ends, and makes the next one the oldest.

A request may come when the reserve serves a younger one, and that one may wait elsewhere for the older: in another
process, whose reserve the older one has. So what the reserve holds for the younger is asked back, unless somebody has
begun to use it. What has been given back is made again.
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
from cornserve.transport.errors import TooLargeError
from cornserve.transport.segment import PAGE, pages_of
from cornserve.transport.slab import Slab
from cornserve.transport.store import Block, Region, Store

RECALL_SECONDS = 1.0
"""How long an older request waits for the reserve before it is asked back. Most who hold it will be done by then."""


class Age(NamedTuple):
    """Orders requests: the smaller one goes first."""

    arrived_us: int
    request_id: str


@dataclass(eq=False, slots=True)
class Account:
    """What a request has to do with this slab."""

    age: Age
    openings: int = 0
    """Productions and pulls that may want more."""
    owned_pages: int = 0
    recalls: set[Callable[[], None]] = field(default_factory=set)
    """Each asks somebody for what it holds of the reserve."""


@dataclass(order=True, slots=True)
class Waiter:
    age: Age
    number: int
    account: Account = field(compare=False)
    nbytes: int = field(compare=False)
    room: asyncio.Future[Block] = field(compare=False)


class Admission:
    """Divides one slab among the requests that ask for room in it.

    Args:
        request_bytes: what one request may have at once; the reserve is as large.

    Raises:
        ValueError: the slab is smaller than that.
    """

    def __init__(self, slab: Slab, request_bytes: int) -> None:
        reserved = pages_of(request_bytes)
        if not 0 < reserved <= slab.pages:
            raise ValueError(f"a slab of {slab.pages * PAGE} bytes cannot hold requests of {request_bytes}")
        self.store = Store(slab, self._serve_soon)
        self.common = Region(0, slab.pages - reserved)
        self.reserve = Region(slab.pages - reserved, reserved)
        self.wait_seconds = Histogram()
        self._accounts: dict[Age, Account] = {}
        self._ages: list[Age] = []
        """In order."""
        self._served: Account | None = None
        """Whom the reserve serves, as long as anything in it is held."""
        self._waiters: list[Waiter] = []
        self._numbers = count()
        self._serving: asyncio.Handle | None = None
        self._recalling: asyncio.Handle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def open(self, age: Age) -> Account:
        """The request may ask for room until it is closed as often."""
        account = self._accounts.get(age)
        if account is None:
            account = self._accounts[age] = Account(age)
            insort(self._ages, age)
        account.openings += 1
        return account

    def close(self, account: Account) -> None:
        account.openings -= 1
        if not account.openings:
            del self._accounts[account.age]
            del self._ages[bisect_left(self._ages, account.age)]
            self._serve_soon()  # another one is the oldest now

    async def take(self, account: Account, nbytes: int, *, is_chunk: bool = False) -> Block:
        """Room for a tensor, held once. Waits for it.

        Args:
            is_chunk: it is one of many, and room is made by those that have been consumed.

        Raises:
            TooLargeError: no wait would help.
            SlabError: there is no slab, and none can be made.
        """
        if nbytes < 1:
            raise ValueError("a tensor of no bytes needs no transport")
        wanted = pages_of(nbytes) + (0 if is_chunk else account.owned_pages)
        if wanted > self.reserve.pages:
            raise TooLargeError(f"request {account.age.request_id}", wanted * PAGE, self.reserve.pages * PAGE)
        account.owned_pages += 0 if is_chunk else pages_of(nbytes)
        try:
            if not self.store.slab.is_made:
                await self.store.slab.make()
            return (not self._waiters and self._place(account, nbytes)) or await self._wait(account, nbytes)
        except BaseException:
            account.owned_pages -= 0 if is_chunk else pages_of(nbytes)
            raise

    def disown(self, account: Account, block: Block) -> None:
        """The request owns it no more; consumers may still read it."""
        account.owned_pages -= block.extent.pages

    async def _wait(self, account: Account, nbytes: int) -> Block:
        room: asyncio.Future[Block] = asyncio.get_running_loop().create_future()
        waiter = Waiter(account.age, next(self._numbers), account, nbytes, room)
        insort(self._waiters, waiter)
        started = time.perf_counter()
        try:
            self._serve()
            return await room
        except asyncio.CancelledError:
            if room.done() and not room.cancelled():
                self.store.drop(room.result())
            else:
                self._waiters.remove(waiter)
                self._serve_soon()
            raise
        finally:
            self.wait_seconds.observe(time.perf_counter() - started)

    def _serve_soon(self) -> None:
        if self._waiters and self._serving is None:
            self._serving = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Gives room to those who wait: strictly by age, but whoever has the reserve goes on in it."""
        self._serving = None
        is_blocked = False
        for waiter in [waiter for waiter in self._waiters if not waiter.room.done()]:
            place = self._place_in_reserve if is_blocked else self._place
            block = place(waiter.account, waiter.nbytes)
            if block is None:
                is_blocked = True
            else:
                self._waiters.remove(waiter)
                waiter.room.set_result(block)
        self._recall_later()

    def _recall_later(self) -> None:
        if self._recalling is None and self._serves_a_younger_one:
            self._recalling = asyncio.get_running_loop().call_later(RECALL_SECONDS, self._recall)

    def _recall(self) -> None:
        self._recalling = None
        if self._served is not None and self._serves_a_younger_one:
            for recall in list(self._served.recalls):
                recall()
        self._recall_later()

    @property
    def _serves_a_younger_one(self) -> bool:
        """Whether the oldest request waits while the reserve serves another."""
        oldest_waits = bool(self._waiters) and self._waiters[0].age == self._ages[0]
        return oldest_waits and self.reserve.held_pages > 0 and self._served is not self._waiters[0].account

    def _place(self, account: Account, nbytes: int) -> Block | None:
        return self.store.take(self.common, nbytes) or self._place_in_reserve(account, nbytes)

    def _place_in_reserve(self, account: Account, nbytes: int) -> Block | None:
        if not self.reserve.held_pages:
            self._served = self._accounts[self._ages[0]] if self._ages else None
        return self.store.take(self.reserve, nbytes) if account is self._served else None
