"""Transcripts of vLLM's own server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from cornserve_tasklib import Audio

if TYPE_CHECKING:
    from cornserve_executors.transcription.engine import TranscriptionEngine

TOKENS = 40

SpeechServer: TypeAlias = Mapping[str, Callable[..., Any]]
"""vLLM's handlers of both endpoints, by task."""


def speech_server(engine: TranscriptionEngine) -> SpeechServer:
    """Returns vLLM's handlers, which use the engine."""
    from vllm.entrypoints.openai.models.protocol import BaseModelPath
    from vllm.entrypoints.openai.models.serving import OpenAIServingModels
    from vllm.entrypoints.speech_to_text.transcription.serving import OpenAIServingTranscription
    from vllm.entrypoints.speech_to_text.translation.serving import OpenAIServingTranslation

    models = OpenAIServingModels(engine._vllm, [BaseModelPath(name="model", model_path="model")])
    transcription = OpenAIServingTranscription(engine._vllm, models, request_logger=None)
    translation = OpenAIServingTranslation(engine._vllm, models, request_logger=None)
    return {"transcribe": transcription.create_transcription, "translate": translation.create_translation}


async def vllm_response(server: SpeechServer, audio: Audio, options: Mapping[str, Any], **fields: Any) -> Any:
    """Returns the response of vLLM's server to a request with the options of a `TranscriptionRequest`."""
    from vllm.entrypoints.speech_to_text.transcription.protocol import TranscriptionRequest as Transcription
    from vllm.entrypoints.speech_to_text.translation.protocol import TranslationRequest as Translation

    assert audio.data is not None
    task = options.get("task", "transcribe")
    kind: Any = Transcription if task == "transcribe" else Translation
    given = {name: value for name, value in options.items() if name not in ("task", "segments")}
    if task == "translate":
        given["to_language"] = "en"
    response_format = "verbose_json" if options.get("segments") else "json"
    request = kind.model_construct(
        model="model", response_format=response_format, max_completion_tokens=TOKENS, **given, **fields
    )
    return await server[task](audio.data.data, request)
