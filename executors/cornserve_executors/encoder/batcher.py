"""Batches media for the device, which one task owns.

The batcher does not wait for a batch to fill. While the device encodes one batch, the media of the next one queue up,
so batches grow with the load. Requests are served round-robin, and so are large media, which exceed the batch budget:
a medium waits for the batch on the device and for at most one large one, however many media another request has.
Media of apps with latency targets are served in the order in which they are due.
Long media arrive in parts, which occupy the device only for a short time in each batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cornserve.due_queue import DueQueue
from cornserve_executors.base import EngineDeadError
from cornserve_executors.encoder.stats import EncoderStats, EncodingWork

PART_SECONDS = 0.03
"""The time for which parts of long media may occupy the device in a batch, unless the first part takes longer."""

Input = TypeVar("Input")
Output = TypeVar("Output")


@dataclass(slots=True, eq=False)
class _BatchItem(Generic[Input, Output]):
    input: Input | None
    """None after the caller has left."""
    work: EncodingWork
    output: asyncio.Future[Output] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher(Generic[Input, Output]):
    """Queues inputs and encodes them in batches while `run` is running.

    Args:
        encode: encodes a batch; called in the device thread.
        device: an executor with a single thread, the device thread.
        max_patches: the budget of a batch. A medium with more patches is a separate batch.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[Input]], Sequence[Output]],
        device: Executor,
        max_patches: int,
        stats: EncoderStats,
    ) -> None:
        self._encode = encode
        self._device = device
        self._max_patches = max_patches
        self._stats = stats
        self._small = DueQueue[_BatchItem[Input, Output]]()
        self._large = DueQueue[_BatchItem[Input, Output]]()
        """Media that exceed the budget."""
        self._parts = DueQueue[_BatchItem[Input, Output]]()
        """Parts of long media."""
        self._order = [self._large, self._small]
        self._had_parts = False
        """Whether the last batch contains parts."""
        self._patches_per_second = 0.0
        """The speed of the device in the last batch."""
        self._arrived = asyncio.Event()
        self._failure: EngineDeadError | None = None

    async def encode(self, input: Input, work: EncodingWork) -> Output:
        """Queues an input and returns its output. Cancelling the call frees the input.

        Raises `EngineDeadError` if the device has failed permanently.
        """
        if self._failure is not None:
            raise EngineDeadError(str(self._failure))
        item: _BatchItem[Input, Output] = _BatchItem(input, work)
        del input  # The traceback of a cancellation keeps this frame.
        self._queue_for(work).push(item, work.request_id, work.due)
        self._arrived.set()
        try:
            return await item.output
        finally:
            item.input = None

    def _queue_for(self, work: EncodingWork) -> DueQueue[_BatchItem[Input, Output]]:
        if work.patches > self._max_patches:
            return self._large
        return self._parts if work.is_part else self._small

    async def run(self) -> None:
        """Encodes batches until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while batch := self._next_batch():
                try:
                    await self._encode_isolating_failures(batch)
                except EngineDeadError as error:
                    self._failure = error
                    while batch:
                        self._fail(batch, error)
                        batch = self._next_batch()
                    raise

    def _next_batch(self) -> list[_BatchItem[Input, Output]]:
        """Takes items up to the budget. Large and small media alternate in priority.

        While others wait, parts of long media are in every second batch, so that a small medium that waits for a part
        is not encoded together with another one.
        """
        self._order.reverse()
        batch: list[_BatchItem[Input, Output]] = []
        part_budget = min(self._max_patches, PART_SECONDS * self._patches_per_second)
        if not self._had_parts and (self._order[0] is self._small or not self._large):
            self._take(self._parts, batch, part_budget)
        for queue in self._order:
            self._take(queue, batch, self._max_patches)
        if not batch:
            self._take(self._parts, batch, part_budget)
        self._had_parts = any(item.work.is_part for item in batch)
        return batch

    def _take(
        self, queue: DueQueue[_BatchItem[Input, Output]], batch: list[_BatchItem[Input, Output]], budget: float
    ) -> None:
        """Moves items to the batch while its patches are within the budget. An empty batch takes any item."""
        patches = sum(item.work.patches for item in batch)
        while queue:
            item = queue.peek()
            if not item.output.done():  # The caller may have been cancelled.
                if batch and patches + item.work.patches > budget:
                    return
                batch.append(item)
                patches += item.work.patches
            queue.pop()

    async def _encode_isolating_failures(self, batch: Sequence[_BatchItem[Input, Output]]) -> None:
        """Encodes a batch. If that fails, encodes its media one by one, so that only the faulty ones fail."""
        try:
            await self._encode_batch(batch)
        except EngineDeadError:
            raise
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch, error)
            else:
                for item in batch:
                    await self._encode_isolating_failures([item])

    async def _encode_batch(self, batch: Sequence[_BatchItem[Input, Output]]) -> None:
        batch = [item for item in batch if not item.output.done()]
        inputs = [item.input for item in batch if item.input is not None]
        if not inputs:
            return
        loop = asyncio.get_running_loop()
        started = time.perf_counter()
        with self._stats.batch([item.work for item in batch]):
            outputs = await loop.run_in_executor(self._device, self._encode, inputs)
        self._patches_per_second = sum(item.work.patches for item in batch) / (time.perf_counter() - started)
        for item, output in zip(batch, outputs, strict=True):
            if not item.output.done():
                item.output.set_result(output)

    def _fail(self, batch: Sequence[_BatchItem[Input, Output]], error: Exception) -> None:
        for item in batch:
            if not item.output.done():
                item.output.set_exception(error)
