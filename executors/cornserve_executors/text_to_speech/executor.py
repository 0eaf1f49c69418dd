"""The executor of a `TextToSpeechTask`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.text_to_speech.stats import TextToSpeechStats
from cornserve_tasklib.text_to_speech import SpeechChunk, SpeechRequest, SpeechResponse, TextToSpeechTask

if TYPE_CHECKING:
    from cornserve_executors.text_to_speech.engine import TextToSpeechEngine


class TextToSpeechExecutor(DeviceExecutor[TextToSpeechTask, SpeechRequest, SpeechResponse]):
    library = "transformers"
    continues = True

    _engine: TextToSpeechEngine

    def __init__(self, config: TextToSpeechTask) -> None:
        super().__init__(config)
        self._stats = TextToSpeechStats()

    def import_engine(self) -> Callable[[TextToSpeechTask], TextToSpeechEngine]:
        from cornserve_executors.text_to_speech.engine import TextToSpeechEngine

        return partial(TextToSpeechEngine, stats=self._stats)

    async def invoke(self, request: SpeechRequest, context: InvocationContext) -> SpeechResponse:
        async def send(chunk: SpeechChunk) -> None:
            if context.is_requested("audio"):
                await context.send("audio", chunk.model_dump_json().encode())

        request = context.with_seed(request)
        return await self._engine.speak(request, send, sent_chunks=len(context.delivered.get("audio", ())))

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()
