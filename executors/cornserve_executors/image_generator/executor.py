"""The executor of an `ImageGenerator`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve_executors.base import Executor, InvocationContext, ProgressReporter
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_executors.models import check_model
from cornserve_tasklib.image_generation import (
    ImageGenerationRequest,
    ImageGenerationResponse,
    ImageGenerator,
    ImageProgress,
)

if TYPE_CHECKING:
    from cornserve_executors.image_generator.engine import ImageGeneratorEngine


class ImageGeneratorExecutor(Executor[ImageGenerator, ImageGenerationRequest, ImageGenerationResponse]):
    _engine: ImageGeneratorEngine
    _engine_task: asyncio.Task[None]

    def __init__(self, config: ImageGenerator) -> None:
        super().__init__(config)
        self._stats = ImageGeneratorStats()

    async def start(self, report_progress: ProgressReporter) -> None:
        check_model(self.config.model_id)
        report_progress("importing diffusers")
        engine_type = await asyncio.to_thread(_import_engine)
        report_progress("loading weights")
        self._engine = await asyncio.to_thread(engine_type, self.config, self._stats)
        report_progress("warming up")
        await asyncio.to_thread(self._engine.warm_up)
        self._engine_task = asyncio.create_task(self._engine.run())

    async def invoke(self, request: ImageGenerationRequest, context: InvocationContext) -> ImageGenerationResponse:
        async def send(progress: ImageProgress) -> None:
            await context.send("progress", progress.model_dump_json(exclude_defaults=True).encode())

        is_streamed = context.is_requested("progress")
        return await self._engine.generate(request, context.request_id, send if is_streamed else None)

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


def _import_engine() -> type[ImageGeneratorEngine]:
    from cornserve_executors.image_generator.engine import ImageGeneratorEngine

    return ImageGeneratorEngine
