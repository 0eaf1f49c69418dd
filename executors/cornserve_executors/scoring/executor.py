"""The executor of a `ScoringTask`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cornserve_executors.base import InvocationContext
from cornserve_executors.vllm.executor import VllmExecutor
from cornserve_tasklib.scoring import ScoringRequest, ScoringResponse, ScoringTask

if TYPE_CHECKING:
    from cornserve_executors.scoring.engine import ScoringEngine


class ScoringExecutor(VllmExecutor[ScoringTask, ScoringRequest, ScoringResponse]):
    _engine: ScoringEngine

    def import_engine(self) -> type[ScoringEngine]:
        from cornserve_executors.scoring.engine import ScoringEngine

        return ScoringEngine

    async def warm_up(self) -> None:
        await self._engine.score(ScoringRequest(queries=["Hello"], documents=["Hello"]), "warm-up")

    async def invoke(self, request: ScoringRequest, context: InvocationContext) -> ScoringResponse:
        return await self._engine.score(request, context.id)
