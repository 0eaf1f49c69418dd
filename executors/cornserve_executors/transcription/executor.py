"""The executor of a `TranscriptionTask`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cornserve_executors.base import InvocationContext
from cornserve_executors.media.silence import SILENCE
from cornserve_executors.transcription.repeated_transcript import RepeatedTranscript
from cornserve_executors.vllm.executor import VllmExecutor
from cornserve_tasklib.transcription import (
    TranscriptionChunk,
    TranscriptionRequest,
    TranscriptionResponse,
    TranscriptionTask,
)

if TYPE_CHECKING:
    from cornserve_executors.transcription.engine import TranscriptionEngine


class TranscriptionExecutor(VllmExecutor[TranscriptionTask, TranscriptionRequest, TranscriptionResponse]):
    continues = True

    _engine: TranscriptionEngine

    def import_engine(self) -> type[TranscriptionEngine]:
        from cornserve_executors.transcription.engine import TranscriptionEngine

        return TranscriptionEngine

    async def warm_up(self) -> None:
        await self._engine.transcribe(TranscriptionRequest(audio=SILENCE, max_completion_tokens=2), "warm-up")

    async def invoke(self, request: TranscriptionRequest, context: InvocationContext) -> TranscriptionResponse:
        delivered = context.delivered.get("chunks", ())
        repeated = RepeatedTranscript([TranscriptionChunk.model_validate_json(chunk) for chunk in delivered])

        async def send(chunk: TranscriptionChunk) -> None:
            if (part := repeated.new_part(chunk)) is not None:
                await context.send("chunks", part.model_dump_json(exclude_defaults=True).encode())

        response = await self._engine.transcribe(request, context.id, send if context.is_requested("chunks") else None)
        repeated.check_complete()
        return response
