"""The executor of a `TalkerTask`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve_executors.base import Executor, InvocationContext, ProgressReporter
from cornserve_executors.models import check_model
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.talker import SpokenChunk, TalkerRequest, TalkerResponse, TalkerTask

if TYPE_CHECKING:
    from cornserve_executors.talker.engine import TalkerEngine


class TalkerExecutor(Executor[TalkerTask, TalkerRequest, TalkerResponse]):
    _engine: TalkerEngine
    _engine_task: asyncio.Task[None]

    def __init__(self, config: TalkerTask) -> None:
        super().__init__(config)
        self._stats = TalkerStats()

    async def start(self, report_progress: ProgressReporter) -> None:
        check_model(self.config.model_id)
        report_progress("importing transformers")
        engine_type = await asyncio.to_thread(_import_engine)
        report_progress("loading weights")
        self._engine = await asyncio.to_thread(engine_type, self.config, self._stats)
        report_progress("warming up")
        await asyncio.to_thread(self._engine.warm_up)
        self._engine_task = asyncio.create_task(self._engine.run())

    async def invoke(self, request: TalkerRequest, context: InvocationContext) -> TalkerResponse:
        async def send(chunk: SpokenChunk) -> None:
            await context.send("chunks", chunk.model_dump_json().encode())

        return await self._engine.speak(request, context.id, send if context.is_requested("chunks") else None)

    async def wait_engine_death(self) -> str:
        await asyncio.wait({self._engine_task})
        return f"the device failed: {self._engine_task.exception()}"

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()

    async def stop(self) -> None:
        if hasattr(self, "_engine_task"):
            self._engine_task.cancel()
            await asyncio.gather(self._engine_task, return_exceptions=True)
        if hasattr(self, "_engine"):
            await asyncio.to_thread(self._engine.shutdown)


def _import_engine() -> type[TalkerEngine]:
    from cornserve_executors.talker.engine import TalkerEngine

    return TalkerEngine
