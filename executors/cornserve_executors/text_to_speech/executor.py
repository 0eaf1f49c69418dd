"""The executor of a `TextToSpeechTask`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve_executors.base import Executor, InvocationContext, ProgressReporter
from cornserve_executors.models import check_model
from cornserve_executors.text_to_speech.stats import TextToSpeechStats
from cornserve_tasklib.text_to_speech import SpeechChunk, SpeechRequest, SpeechResponse, TextToSpeechTask

if TYPE_CHECKING:
    from cornserve_executors.text_to_speech.engine import TextToSpeechEngine


class TextToSpeechExecutor(Executor[TextToSpeechTask, SpeechRequest, SpeechResponse]):
    continues = True

    _engine: TextToSpeechEngine

    def __init__(self, config: TextToSpeechTask) -> None:
        super().__init__(config)
        self._stats = TextToSpeechStats()

    async def start(self, report_progress: ProgressReporter) -> None:
        check_model(self.config.model_id)
        report_progress("importing transformers")
        engine_type = await asyncio.to_thread(_import_engine)
        report_progress("loading weights")
        self._engine = await asyncio.to_thread(engine_type, self.config, self._stats)
        report_progress("warming up")
        await asyncio.to_thread(self._engine.warm_up)

    async def invoke(self, request: SpeechRequest, context: InvocationContext) -> SpeechResponse:
        async def send(chunk: SpeechChunk) -> None:
            if context.is_requested("audio"):
                await context.send("audio", chunk.model_dump_json().encode())

        return await self._engine.speak(request, send, sent_chunks=len(context.delivered.get("audio", ())))

    async def wait_engine_death(self) -> str:
        return await self._engine.wait_death()

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()

    async def stop(self) -> None:
        if hasattr(self, "_engine"):
            await asyncio.to_thread(self._engine.shutdown)


def _import_engine() -> type[TextToSpeechEngine]:
    from cornserve_executors.text_to_speech.engine import TextToSpeechEngine

    return TextToSpeechEngine
