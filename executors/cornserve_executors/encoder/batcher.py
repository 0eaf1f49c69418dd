"""One task owns the device: it takes what waits, up to a budget, and encodes it together.

Nobody waits for a batch to fill. While one batch is being encoded the next one gathers, so batches grow with the load,
and no image waits for more than the batch before its own and those that fill up before it. Requests and apps are of no
account: what waits is encoded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cornserve_executors.base import EngineDeadError
from cornserve_executors.encoder.stats import Stats

Input = TypeVar("Input")
Output = TypeVar("Output")


@dataclass(frozen=True, slots=True, eq=False)
class _Item(Generic[Input, Output]):
    input: Input
    patches: int
    request_id: str
    output: asyncio.Future[Output] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher(Generic[Input, Output]):
    """
    Args:
        encode: encodes a batch, in the device's thread.
        device: that thread.
        max_patches: of a batch. An image that has more is a batch of its own.
    """

    def __init__(
        self, encode: Callable[[Sequence[Input]], Sequence[Output]], device: Executor, max_patches: int, stats: Stats
    ) -> None:
        self._encode = encode
        self._device = device
        self._max_patches = max_patches
        self._stats = stats
        self._waiting: deque[_Item[Input, Output]] = deque()
        self._arrived = asyncio.Event()
        self._death: EngineDeadError | None = None

    async def encode(self, input: Input, patches: int, request_id: str) -> Output:
        """The result, once the image's turn has come. Whoever is cancelled gives up the turn.

        Raises `EngineDeadError` once the device has failed for good.
        """
        if self._death is not None:
            raise EngineDeadError(str(self._death))
        item: _Item[Input, Output] = _Item(input, patches, request_id)
        self._waiting.append(item)
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
                    self._fail([*batch, *self._waiting], error)
                    self._waiting.clear()
                    raise

    def _take(self) -> list[_Item[Input, Output]]:
        batch: list[_Item[Input, Output]] = []
        patches = 0
        while self._waiting:
            item = self._waiting[0]
            if not item.output.done():  # Whoever waited for it may have left.
                if batch and patches + item.patches > self._max_patches:
                    break
                batch.append(item)
                patches += item.patches
            self._waiting.popleft()
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
