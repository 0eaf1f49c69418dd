"""The executors of an `ImageGenerator` and an `ImageEditor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.image_generator.progress_sender import progress_sender
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.image_editing import ImageEditor, ImageEditRequest
from cornserve_tasklib.image_generation import ImageGenerationRequest, ImageGenerationResponse, ImageGenerator

if TYPE_CHECKING:
    from cornserve_executors.image_generator.editing_engine import ImageEditorEngine
    from cornserve_executors.image_generator.engine import ImageGeneratorEngine
    from cornserve_executors.image_generator.pipeline_engine import PipelineEngine


class ImageGeneratorExecutor(DeviceExecutor[ImageGenerator, ImageGenerationRequest, ImageGenerationResponse]):
    library = "diffusers"
    repeats = "in any order"

    _engine: ImageGeneratorEngine | PipelineEngine

    def __init__(self, config: ImageGenerator) -> None:
        super().__init__(config)
        self._stats = ImageGeneratorStats()

    def import_engine(self) -> Callable[[ImageGenerator], ImageGeneratorEngine | PipelineEngine]:
        from cornserve_executors.image_generator.select_engine import create_engine

        return partial(create_engine, stats=self._stats)

    async def invoke(self, request: ImageGenerationRequest, context: InvocationContext) -> ImageGenerationResponse:
        request = context.with_seed(request)
        return await self._engine.generate(request, context.request_id, progress_sender(context))

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()


class ImageEditorExecutor(DeviceExecutor[ImageEditor, ImageEditRequest, ImageGenerationResponse]):
    library = "diffusers"
    repeats = "in any order"

    _engine: ImageEditorEngine

    def __init__(self, config: ImageEditor) -> None:
        super().__init__(config)
        self._stats = ImageGeneratorStats()

    def import_engine(self) -> Callable[[ImageEditor], ImageEditorEngine]:
        from cornserve_executors.image_generator.editing_engine import ImageEditorEngine

        return partial(ImageEditorEngine.load, stats=self._stats)

    async def invoke(self, request: ImageEditRequest, context: InvocationContext) -> ImageGenerationResponse:
        request = context.with_seed(request)
        return await self._engine.edit(request, context.request_id, progress_sender(context))

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()
