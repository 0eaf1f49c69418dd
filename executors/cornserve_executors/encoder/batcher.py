"""One task owns the device: it takes what waits, up to a budget, and encodes it together.

Nobody waits for a batch to fill. While one batch is being encoded the next one gathers, so batches grow with the load.
Requests have turns, and so have images that take more than a batch: what one request sends, however much and however
large, keeps another's image waiting for the batch that is being encoded, and for one that is all of a large image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cornserve_executors.base import EngineDeadError
from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.media.fair_queue import FairQueue

Input = TypeVar("Input")
Output = TypeVar("Output")


@dataclass(frozen=True, slots=True, eq=False)
class _Item(Generic[Input, Output]):
    input: Input
    patches: int
    request_id: str
    output: asyncio.Future[Output] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher(Generic[Input, Output]):
    """Collects what is to be encoded, and encodes it batch by batch as long as it runs.

    Args:
        encode: encodes a batch, in the device's thread.
        device: that thread.
        max_patches: of a batch. An image that has more is a batch of its own.
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
        self._small = FairQueue[_Item[Input, Output]]()
        self._large = FairQueue[_Item[Input, Output]]()
        """Those that are a batch of their own."""
        self._order = [self._large, self._small]
        self._arrived = asyncio.Event()
        self._death: EngineDeadError | None = None

    async def encode(self, input: Input, patches: int, request_id: str) -> Output:
        """The result, once the image's turn has come. Whoever is cancelled gives up the turn.

        Raises `EngineDeadError` once the device has failed for good.
        """
        if self._death is not None:
            raise EngineDeadError(str(self._death))
        item: _Item[Input, Output] = _Item(input, patches, request_id)
        (self._large if patches > self._max_patches else self._small).add(item, request_id)
        self._arrived.set()
        return await item.output

    async def run(self) -> None:
        """Until it is cancelled, or the device has failed for good."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while batch := self._take():
                try:
                    await self._work(batch)
                except EngineDeadError as error:
                    self._death = error
                    while batch:
                        self._fail(batch, error)
                        batch = self._take()
                    raise

    def _take(self) -> list[_Item[Input, Output]]:
        """The next batch. Large and small images come first in turns."""
        self._order.reverse()
        batch: list[_Item[Input, Output]] = []
        patches = 0
        for waiting in self._order:
            while waiting:
                item = waiting.next()
                if not item.output.done():  # Whoever waited for it may have left.
                    if batch and patches + item.patches > self._max_patches:
                        break
                    batch.append(item)
                    patches += item.patches
                waiting.take()
        return batch

    async def _work(self, batch: Sequence[_Item[Input, Output]]) -> None:
        """An image that cannot be encoded does no harm to those that came into its batch."""
        try:
            await self._try(batch)
        except EngineDeadError:
            raise
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch, error)
            else:
                for item in batch:
                    await self._work([item])

    async def _try(self, batch: Sequence[_Item[Input, Output]]) -> None:
        loop = asyncio.get_running_loop()
        with self._stats.batch([item.request_id for item in batch], sum(item.patches for item in batch)):
            outputs = await loop.run_in_executor(self._device, self._encode, [item.input for item in batch])
        for item, output in zip(batch, outputs, strict=True):
            if not item.output.done():
                item.output.set_result(output)

    def _fail(self, batch: Sequence[_Item[Input, Output]], error: Exception) -> None:
        for item in batch:
            if not item.output.done():
                item.output.set_exception(error)
