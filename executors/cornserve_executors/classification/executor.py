"""The executor of a `ClassificationTask`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cornserve_executors.base import InvocationContext
from cornserve_executors.vllm.executor import VllmExecutor
from cornserve_tasklib.classification import ClassificationRequest, ClassificationResponse, ClassificationTask

if TYPE_CHECKING:
    from cornserve_executors.classification.engine import ClassificationEngine


class ClassificationExecutor(VllmExecutor[ClassificationTask, ClassificationRequest, ClassificationResponse]):
    _engine: ClassificationEngine

    def import_engine(self) -> type[ClassificationEngine]:
        from cornserve_executors.classification.engine import ClassificationEngine

        return ClassificationEngine

    async def warm_up(self) -> None:
        await self._engine.classify(ClassificationRequest(input=["Hello"]), "warm-up")

    async def invoke(self, request: ClassificationRequest, context: InvocationContext) -> ClassificationResponse:
        return await self._engine.classify(request, context.id)
