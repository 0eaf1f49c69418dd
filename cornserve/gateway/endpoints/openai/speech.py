"""`/v1/audio/speech`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncGenerator
from functools import partial
from typing import Literal

from fastapi import Request

from cornserve.app.response_readers import SPEECH, SPEECH_ENDING
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.common_fields import OpenAIRequest, check_app, openai_usage
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.errors import ApiError
from cornserve.gateway.request.session import Session
from cornserve.task import Stream
from cornserve_tasklib.audio_format import MIME_TYPES
from cornserve_tasklib.text_to_speech import SpeechChunk, SpeechRequest


class CreateSpeechRequest(SpeechRequest, OpenAIRequest):
    """OpenAI's request body."""

    stream_format: Literal["audio", "sse"] = "audio"
    """The bytes of the audio file, or events that contain them."""


async def create_speech(request: Request, context: Context) -> SendResponse:
    """Speaks a text: sends the audio file while it is generated, as bytes or as events."""
    body = await read_fields(request, CreateSpeechRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "speech")
    speech = tracked(SpeechRequest, body)
    if body.stream_format == "sse":
        return handler.stream(partial(_events, speech))
    return handler.stream(partial(_bytes, speech), MIME_TYPES[body.response_format])


async def _bytes(request: SpeechRequest, session: Session) -> AsyncGenerator[bytes, None]:
    """Yields the audio file."""
    async for chunk in _chunks(session, request):
        if audio := b64decode(chunk.audio):
            yield audio


async def _events(request: SpeechRequest, session: Session) -> AsyncGenerator[bytes, None]:
    """Yields OpenAI's events."""
    async for chunk in _chunks(session, request):
        if chunk.audio:
            yield sse.encode_typed_event("speech.audio.delta", {"audio": chunk.audio, "sample_rate": chunk.sample_rate})
    ending = await session.run(request, SPEECH_ENDING)
    usage = openai_usage(ending.usage)
    tokens = {
        "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "total_tokens": usage["total_tokens"],
    }
    yield sse.encode_typed_event("speech.audio.done", {"seconds": ending.seconds, "usage": tokens})


async def _chunks(session: Session, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
    """Raises a 500 if the app responds without audio."""
    chunks = await session.run(request, SPEECH)
    if not isinstance(chunks, Stream):
        raise ApiError(500, "the app has responded without the stream `audio`", code="no_audio")
    async for chunk in chunks:
        if chunk.audio:
            session.record_audio()
        yield chunk
