"""The executor of a `TalkerTask`."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve.transport import TensorView
from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.talker import SpokenChunk, TalkerRequest, TalkerResponse, TalkerTask

if TYPE_CHECKING:
    from cornserve_executors.talker.engine import TalkerEngine


class TalkerExecutor(DeviceExecutor[TalkerTask, TalkerRequest, TalkerResponse]):
    library = "transformers"

    _engine: TalkerEngine

    def __init__(self, config: TalkerTask) -> None:
        super().__init__(config)
        self._stats = TalkerStats()

    def import_engine(self) -> Callable[[TalkerTask], TalkerEngine]:
        from cornserve_executors.talker.engine import TalkerEngine

        return partial(TalkerEngine, stats=self._stats)

    async def invoke(self, request: TalkerRequest, context: InvocationContext) -> TalkerResponse:
        async def send(chunk: SpokenChunk) -> None:
            await context.send("chunks", chunk.model_dump_json().encode())

        stream = send if context.is_requested("chunks") else None
        if request.tokens is None:
            return await self._engine.speak(request, context.id, stream)
        async with aclosing(_read_tokens(context.receive_stream(request.tokens))) as tokens:
            return await self._engine.speak(request, context.id, stream, tokens)

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()


async def _read_tokens(views: AsyncIterator[TensorView]) -> AsyncGenerator[Sequence[int], None]:
    async for view in views:
        tokens = array("q", bytes(view.view)).tolist()
        view.check()
        yield tokens
