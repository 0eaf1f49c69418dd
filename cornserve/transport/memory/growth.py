"""Lets the memory of a slab follow its use, step by step.

Memory is taken ahead of need, so that tensors need not wait for it: while tensors come and go, there is a step of free
memory above what its tensors occupy. A step that no tensor has used for a while is given back. The first step always
stays, so that the first tensor after a pause is as fast as any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from typing import Final

from cornserve.transport.memory.refcounted_blocks import Block, Region
from cornserve.transport.memory.segment import STEP_PAGES
from cornserve.transport.memory.slab import Slab

CHECKS: Final = 2
"""Checks that a step survives without use. A process that has hung makes up for at most one of them."""

AHEAD_SECONDS: Final = 0.01
"""Time after an allocation at which memory is requested ahead. The copy of the tensor comes first."""

RETRY_SECONDS: Final = 1.0
"""Time after which memory is requested again that the system did not have."""

log = logging.getLogger(__name__)


class SlabGrowth:
    """Takes and gives back the memory of regions.

    Args:
        on_change: called when regions have more memory, or when `error` has changed.
        idle_seconds: after this time without use, memory is given back within half of the time.
    """

    def __init__(
        self, slab: Slab, regions: Sequence[Region], on_change: Callable[[], None], idle_seconds: float
    ) -> None:
        self.slab = slab
        self.error: OSError | None = None
        """Why memory could not be taken, until it is requested again."""
        self.failed_at = 0.0
        """The time of the last failure (`loop.time()`)."""
        self.failures = 0
        self._layout = slab.layout
        self._regions = regions
        self._on_change = on_change
        self._check_seconds = idle_seconds / CHECKS
        self._unused_checks: dict[int, int] = {}
        """The number of checks without use, of each step that has memory and may be given back."""
        self._wanted: dict[int, None] = {}
        self._unused: list[int] = []
        self._work: asyncio.Task[None] | None = None
        self._check_handle: asyncio.TimerHandle | None = None
        self._retry_handle: asyncio.TimerHandle | None = None
        self._ahead: dict[Region, asyncio.TimerHandle] = {}
        """The regions for which memory will be requested ahead."""
        self.is_started = False
        """Whether tensors can use the first step."""
        self._is_stopped = False

    async def start(self) -> None:
        """Creates the slab, with the memory of the first step. Raises `SlabError`."""
        await self.slab.create()
        if not self.is_started:
            self.is_started = True
            self._add(self._layout.step_pages(0))

    async def stop(self) -> None:
        """Ends all work."""
        self._is_stopped = True
        for handle in (self._check_handle, self._retry_handle, *self._ahead.values()):
            if handle is not None:
                handle.cancel()
        self._wanted.clear()
        self._unused.clear()
        if self._work is not None:
            await asyncio.gather(self._work, return_exceptions=True)

    def keep_ahead(self, region: Region) -> None:
        """Requests memory before it is needed. Called after each allocation."""
        if region.allocator.free_pages < STEP_PAGES and region.untaken.free_pages and region not in self._ahead:
            loop = asyncio.get_running_loop()
            self._ahead[region] = loop.call_later(AHEAD_SECONDS, self._request_ahead, region)

    def _request_ahead(self, region: Region) -> None:
        del self._ahead[region]
        if region.allocator.free_pages < STEP_PAGES and region.untaken.free_pages and self.error is None:
            self._request([self._layout.step_of(region.untaken.runs[0].start)])

    def on_freed(self, block: Block) -> None:
        """Records the end of a use of memory."""
        block.region.unused_checks = 0
        if self._unused_checks:
            for step in self._layout.steps_of(block.offset, block.nbytes):
                if step in self._unused_checks:
                    self._unused_checks[step] = 0

    def can_grow(self, region: Region, pages: int) -> bool:
        """Returns whether the region may get memory for a tensor without freeing others."""
        return self.error is None and self._missing(region, pages) is not None

    def request(self, region: Region, pages: int) -> bool:
        """Requests memory for a tensor. Returns False if the region has no free addresses for it."""
        missing = self._missing(region, pages)
        if missing is not None and self.error is None:
            self._request(missing)
        return missing is not None

    def _missing(self, region: Region, pages: int) -> list[int] | None:
        """Returns the steps without which a tensor does not fit, or None if the region has no addresses for it."""
        if region.allocator.free_pages + region.untaken.free_pages < pages or not region.untaken.free_pages:
            return None
        runs = _merged(sorted([*region.allocator.runs, *region.untaken.runs], key=lambda run: run.start))
        run = next((run for run in runs if len(run) >= pages), None)
        if run is None:
            return None
        steps = range(self._layout.step_of(run.start), self._layout.step_of(run.start + pages - 1) + 1)
        return [step for step in steps if step not in self._unused_checks and step > 0]

    def _request(self, steps: Sequence[int]) -> None:
        self._wanted.update(dict.fromkeys(steps))
        self._start_work()

    def _start_work(self) -> None:
        if self._work is None and not self._is_stopped:
            self._work = asyncio.create_task(self._run(), context=Context())

    async def _run(self) -> None:
        """Takes and gives back one step at a time."""
        try:
            while self._wanted or self._unused:
                if self._wanted:
                    await self._take(next(iter(self._wanted)))
                else:
                    await self._give_back(self._unused.pop())
        finally:
            self._work = None
        self._schedule_check()

    async def _take(self, step: int) -> None:
        if step not in self._unused_checks:
            try:
                await self.slab.take(step, self._add)
            except OSError as error:
                self._fail(error)
                return
            self._unused_checks[step] = 0
        self._wanted.pop(step, None)
        for region, _ in self._parts(self._layout.step_pages(step)):
            self.keep_ahead(region)

    def _fail(self, error: OSError) -> None:
        self._wanted.clear()
        if not self.failures:
            log.warning("cannot take more memory for tensors: %s: tensors wait, or their requests fail", error.strerror)
        self.failures += 1
        loop = asyncio.get_running_loop()
        self.failed_at = loop.time()
        self.error = error
        if not self._is_stopped:
            self._retry_handle = loop.call_later(RETRY_SECONDS, self._retry)
        self._on_change()

    def _retry(self) -> None:
        self.error = None
        self._on_change()

    async def _give_back(self, step: int) -> None:
        pages = self._layout.step_pages(step)
        if not self._is_free(pages):
            return
        self._remove(pages)
        del self._unused_checks[step]
        try:
            if await self.slab.give_back(step):
                return
        except OSError as error:
            log.warning("cannot give back the memory of tensors: %s", error.strerror)
        self._unused_checks[step] = 0
        self._add(pages)

    def _add(self, pages: range) -> None:
        """Lets tensors use pages that have memory."""
        for region, part in self._parts(pages):
            region.untaken.remove(part.start, len(part))
            region.allocator.free(part.start, len(part))
        self._on_change()

    def _remove(self, pages: range) -> None:
        for region, part in self._parts(pages):
            region.allocator.remove(part.start, len(part))
            region.untaken.free(part.start, len(part))

    def _is_free(self, pages: range) -> bool:
        return all(region.allocator.contains(part.start, len(part)) for region, part in self._parts(pages))

    def _parts(self, pages: range) -> Iterator[tuple[Region, range]]:
        for region in self._regions:
            if part := region.clip(pages):
                yield region, part

    def _schedule_check(self) -> None:
        if self._check_handle is None and self._unused_checks and not self._is_stopped:
            self._check_handle = asyncio.get_running_loop().call_later(self._check_seconds, self._check)

    def _check(self) -> None:
        """Gives back the steps that have not been used for long, the last ones first."""
        self._check_handle = None
        for region in self._regions:
            region.unused_checks += 1
        for step in self._unused_checks:
            self._unused_checks[step] += 1
        spare = {
            region: region.allocator.free_pages - STEP_PAGES if region.unused_checks <= CHECKS else region.pages
            for region in self._regions
        }
        """The pages of each region that it does not need to have free memory ahead."""
        for step in sorted(self._unused_checks, reverse=True):
            pages = self._layout.step_pages(step)
            if self._unused_checks[step] > CHECKS and self._is_free(pages):
                parts = list(self._parts(pages))
                if all(len(part) <= spare[region] for region, part in parts):
                    for region, part in parts:
                        spare[region] -= len(part)
                    self._unused.insert(0, step)
        if self._unused:
            self._start_work()
        else:
            self._schedule_check()


def _merged(runs: Sequence[range]) -> Iterator[range]:
    """Yields sorted runs, with adjacent ones as one."""
    current = range(0)
    for run in runs:
        if run.start == current.stop:
            current = range(current.start, run.stop)
        else:
            if current:
                yield current
            current = run
    if current:
        yield current
