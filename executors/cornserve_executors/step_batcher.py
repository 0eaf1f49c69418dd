"""Batches the steps of all requests of a generator: denoising steps of images, frames of speech.

The batcher does not wait for a batch to fill: each step contains all running items. An item joins before the next
step if there is a place, and leaves after its last step, or between steps if its caller is cancelled. Requests get
places in turn. An item that waits for input keeps its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from cornserve.fair_queue import FairQueue
from cornserve_executors.base import EngineDeadError


class SteppedItem(Protocol):
    @property
    def is_done(self) -> bool: ...

    @property
    def is_ready(self) -> bool:
        """Whether the next step changes the item."""


class StepStats(Protocol):
    """The metrics of a generator."""

    def set_items(self, *, running: int, waiting: int) -> None: ...

    def step(self, items: int, /) -> AbstractContextManager[None]:
        """Measures a step of a batch, unless it fails."""


Item = TypeVar("Item", bound=SteppedItem)


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedItem(Generic[Item]):
    item: Item
    on_step: Callable[[], None]
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class StepBatcher(Generic[Item]):
    """Queues items, and runs their steps while `run` is running.

    Args:
        run_step: runs one step of several items; called in the device thread.
        device: an executor with a single thread, the device thread.
        max_items: the maximum number of items in a batch.
    """

    def __init__(
        self, run_step: Callable[[Sequence[Item]], None], device: Executor, max_items: int, stats: StepStats
    ) -> None:
        self._run_step = run_step
        self._device = device
        self._max_items = max_items
        self._stats = stats
        self._waiting = FairQueue[_QueuedItem[Item]]()
        self._running: list[_QueuedItem[Item]] = []
        self._arrived = asyncio.Event()
        self._failure: EngineDeadError | None = None

    async def run_steps(self, item: Item, request_id: str, on_step: Callable[[], None]) -> None:
        """Runs all steps of an item, and calls `on_step` after each. Cancelling takes effect before the next step.

        Raises `EngineDeadError` if the device has failed permanently.
        """
        if self._failure is not None:
            raise EngineDeadError(str(self._failure))
        queued = _QueuedItem(item, on_step)
        self._waiting.push(queued, request_id)
        self.wake()
        try:
            await queued.done
        finally:
            self.wake()  # If it was cancelled, its place becomes free.

    def wake(self) -> None:
        """Forms the next batch, because items have changed."""
        self._arrived.set()

    async def run(self) -> None:
        """Runs steps until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while batch := self._next_batch():
                if not any(queued.item.is_ready for queued in batch):
                    break  # `wake` forms the next batch.
                try:
                    await self._step_isolating_failures(batch)
                except EngineDeadError as error:
                    self._fail_all(error)
                    raise
                # The callers of the finished items enqueue work for the device before the next step.
                await asyncio.sleep(0)

    def _next_batch(self) -> list[_QueuedItem[Item]]:
        self._running = [queued for queued in self._running if not queued.done.done()]
        while self._waiting and len(self._running) < self._max_items:
            queued = self._waiting.pop()
            if not queued.done.done():  # The caller may have been cancelled.
                self._running.append(queued)
        self._stats.set_items(running=len(self._running), waiting=len(self._waiting))
        return self._running

    async def _step_isolating_failures(self, batch: Sequence[_QueuedItem[Item]]) -> None:
        """Runs a step. If that fails, runs the step of each item separately, so that only the faulty ones fail."""
        try:
            with self._stats.step(sum(queued.item.is_ready for queued in batch)):
                await asyncio.get_running_loop().run_in_executor(
                    self._device, self._run_step, [queued.item for queued in batch]
                )
        except EngineDeadError:
            raise
        except Exception as error:
            if len(batch) > 1:
                for queued in batch:
                    await self._step_isolating_failures([queued])
            elif not batch[0].done.done():
                batch[0].done.set_exception(error)
            return
        for queued in batch:
            if not queued.done.done():
                queued.on_step()
                if queued.item.is_done:
                    queued.done.set_result(None)

    def _fail_all(self, error: EngineDeadError) -> None:
        self._failure = error
        while batch := self._next_batch():
            for queued in batch:
                queued.done.set_exception(error)
