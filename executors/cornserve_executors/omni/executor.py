"""The executor of an `OmniTask`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.omni.stats import OmniStats
from cornserve_tasklib.omni import OmniResponse, OmniTask
from cornserve_tasklib.speaking_chat import SpokenChatRequest
from cornserve_tasklib.talker import SpokenChunk

if TYPE_CHECKING:
    from cornserve_executors.omni.engine import OmniEngine


class OmniExecutor(DeviceExecutor[OmniTask, SpokenChatRequest, OmniResponse]):
    library = "transformers"
    repeats = "in order"

    _engine: OmniEngine

    def __init__(self, config: OmniTask) -> None:
        super().__init__(config)
        self._stats = OmniStats()

    def import_engine(self) -> Callable[[OmniTask], OmniEngine]:
        from cornserve_executors.omni.engine import OmniEngine

        return partial(OmniEngine, stats=self._stats)

    async def invoke(self, request: SpokenChatRequest, context: InvocationContext) -> OmniResponse:
        async def send(chunk: SpokenChunk) -> None:
            await context.send("chunks", chunk.model_dump_json().encode())

        request = context.with_seed(request)
        return await self._engine.respond(request, send if context.is_requested("chunks") else None)

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()
