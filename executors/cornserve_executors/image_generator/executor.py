"""The executor of an `ImageGenerator`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.image_generator.progress_sender import progress_sender
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.image_generation import ImageGenerationRequest, ImageGenerationResponse, ImageGenerator

if TYPE_CHECKING:
    from cornserve_executors.image_generator.engine import ImageGeneratorEngine


class ImageGeneratorExecutor(DeviceExecutor[ImageGenerator, ImageGenerationRequest, ImageGenerationResponse]):
    library = "diffusers"

    _engine: ImageGeneratorEngine

    def __init__(self, config: ImageGenerator) -> None:
        super().__init__(config)
        self._stats = ImageGeneratorStats()

    def import_engine(self) -> Callable[[ImageGenerator], ImageGeneratorEngine]:
        from cornserve_executors.image_generator.engine import ImageGeneratorEngine

        return partial(ImageGeneratorEngine, stats=self._stats)

    async def invoke(self, request: ImageGenerationRequest, context: InvocationContext) -> ImageGenerationResponse:
        return await self._engine.generate(request, context.request_id, progress_sender(context))

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()
