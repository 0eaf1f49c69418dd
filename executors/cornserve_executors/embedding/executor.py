"""The executor of an `EmbeddingTask`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cornserve_executors.base import InvocationContext
from cornserve_executors.vllm.executor import VllmExecutor
from cornserve_tasklib.embedding import EmbeddingRequest, EmbeddingResponse, EmbeddingTask

if TYPE_CHECKING:
    from cornserve_executors.embedding.engine import EmbeddingEngine


class EmbeddingExecutor(VllmExecutor[EmbeddingTask, EmbeddingRequest, EmbeddingResponse]):
    _engine: EmbeddingEngine

    def import_engine(self) -> type[EmbeddingEngine]:
        from cornserve_executors.embedding.engine import EmbeddingEngine

        return EmbeddingEngine

    async def warm_up(self) -> None:
        await self._engine.embed(EmbeddingRequest(input=["Hello"]), "warm-up")

    async def invoke(self, request: EmbeddingRequest, context: InvocationContext) -> EmbeddingResponse:
        return await self._engine.embed(request, context.id)
