"""`/v1/audio/transcriptions` and `/v1/audio/translations`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from math import ceil
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import to_json

from cornserve.app.response_readers import (
    MAPPED_CHUNKS_OR_TRANSCRIPT,
    TRANSCRIPT,
    TRANSCRIPT_CHUNKS,
    WholeTranscript,
)
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai import subtitles
from cornserve.gateway.endpoints.openai.common_fields import check_app, openai_usage
from cornserve.gateway.endpoints.openai.uploads import inspect_upload
from cornserve.gateway.endpoints.read_form import Upload, read_form
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.session import Session
from cornserve.task import Stream
from cornserve_tasklib.media import Audio
from cornserve_tasklib.transcription import (
    TranscriptionChunk,
    TranscriptionOptions,
    TranscriptionRequest,
    TranscriptionSegment,
    TranscriptionWord,
)

SpeechTask = Literal["transcribe", "translate"]

_OBJECTS: dict[SpeechTask, str] = {"transcribe": "transcription.chunk", "translate": "translation.chunk"}
"""vLLM's names of the events."""

_CONTENT_TYPES = {
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""The types of responses that are not JSON."""

_TEXTS: dict[str, Callable[[WholeTranscript], str]] = {
    "text": lambda transcript: transcript.text,
    "srt": subtitles.srt,
    "vtt": subtitles.vtt,
}


class TranscriptionForm(TranscriptionOptions):
    """OpenAI's form: the audio, and the options of the request and of the response."""

    model_config = ConfigDict(strict=False)

    file: Upload
    model: str
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] = "json"
    timestamp_granularities: Annotated[
        list[Literal["segment", "word"]], Field(alias="timestamp_granularities[]", max_length=8)
    ] = Field(default_factory=list)
    """The timestamps of `verbose_json`: by default, those of segments. Only Whisper has those of words."""
    stream: bool = False
    stream_include_usage: bool = False
    """Whether the last event of a stream contains the usage, as in vLLM."""

    chunking_strategy: Literal["auto"] | None = None
    """Accepted and not used: long audio is divided at quiet positions."""
    stream_continuous_usage_stats: bool = False
    """Must be `false`."""
    use_beam_search: bool = False
    """Must be `false`."""
    n: Annotated[int, Ge(1), Le(1)] = 1
    """The number of beams."""
    length_penalty: float = 1.0
    """Has no effect: it is that of beam search."""
    include_stop_str_in_output: bool = False
    """Has no effect, as the request has no stop strings."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        for field in ("stream_continuous_usage_stats", "use_beam_search"):
            if getattr(self, field):
                raise ValueError(f"{field}: is not supported: remove it")
        if self.stream and self.has_timestamps:
            raise ValueError(
                f"response_format: {self.response_format} cannot be streamed: use json, or set stream to false"
            )
        if self.timestamp_granularities and self.response_format != "verbose_json":
            raise ValueError("timestamp_granularities[]: is set, but response_format is not verbose_json: set both")
        if self.stream_include_usage and not self.stream:
            raise ValueError("stream_include_usage: is set, but stream is false: set stream to true")
        return self

    @property
    def has_timestamps(self) -> bool:
        """Whether the response has the times of segments."""
        return self.response_format in ("verbose_json", "srt", "vtt")


class DurationUsage(BaseModel):
    type: Literal["duration"] = "duration"
    seconds: int


class Transcription(BaseModel):
    """A transcript. The fields after `usage` are part of `verbose_json`. A translation has no usage."""

    text: str
    usage: DurationUsage | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[TranscriptionSegment] | None = None
    words: list[TranscriptionWord] | None = None


async def create_transcription(request: Request, context: Context) -> SendResponse:
    """Transcribes audio, as a whole or (with `stream`) in chunks."""
    return await _create(request, context, "transcribe")


async def create_translation(request: Request, context: Context) -> SendResponse:
    """Translates audio to a text, as a whole or (with `stream`) in chunks."""
    return await _create(request, context, "translate")


async def _create(request: Request, context: Context, task: SpeechTask) -> SendResponse:
    form = await read_form(request, TranscriptionForm)
    handler = await RequestHandler.create(context, form.model, request, type(form))
    check_app(handler.served_app, form.model, "transcription")
    audio = await inspect_upload(form.file, "audio", "file", context.admission.limits)
    assert isinstance(audio, Audio)
    handler.count_media(["audio"])
    speech = TranscriptionHandler(handler.ids.unique, int(time.time()), form, task, audio)
    if form.stream:
        return handler.stream(speech.events)
    return await handler.respond(speech.respond, _CONTENT_TYPES.get(form.response_format, "application/json"))


class TranscriptionHandler:
    """Runs one request and writes its response."""

    def __init__(self, id: str, created: int, form: TranscriptionForm, task: SpeechTask, audio: Audio) -> None:
        self._form = form
        self._task = task
        self._request = tracked(
            TranscriptionRequest,
            form,
            audio=audio,
            task=task,
            segments=form.has_timestamps,
            words="word" in form.timestamp_granularities,
        )
        event = {"id": f"trsc-{id}", "object": _OBJECTS[task], "created": created, "model": form.model}
        self._event_tail = b"," + to_json(event)[1:]
        """The JSON with which all events end."""

    async def respond(self, session: Session) -> bytes:
        result = await session.run(self._request, MAPPED_CHUNKS_OR_TRANSCRIPT)
        if isinstance(result, Stream):
            text = "".join([chunk.text async for chunk in result])
            result = (await session.run(self._request, TRANSCRIPT))._replace(text=text)
        write = _TEXTS.get(self._form.response_format)
        return to_json(self._document(result)) if write is None else write(result).encode()

    def _document(self, transcript: WholeTranscript) -> dict[str, Any]:
        document: dict[str, Any] = {"text": transcript.text}
        if self._task == "transcribe":
            document["usage"] = {"type": "duration", "seconds": ceil(transcript.seconds)}
        if self._form.response_format == "verbose_json":
            wanted = self._form.timestamp_granularities or ("segment",)
            document |= {
                "language": transcript.language if self._task == "transcribe" else self._form.to_language,
                "duration": transcript.seconds,
                "segments": transcript.segments if "segment" in wanted else None,
                "words": transcript.words if "word" in wanted else None,
            }
        return document

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        chunks = await session.run(self._request, TRANSCRIPT_CHUNKS)
        texts: list[str] = []
        if isinstance(chunks, Stream):
            async for batch in chunks.batches():
                texts += [chunk.text for chunk in batch]
                yield b"".join(map(self._delta, batch))
        else:
            texts += [chunk.text for chunk in chunks]
            yield b"".join(map(self._delta, chunks))
        usage = (await session.run(self._request, TRANSCRIPT)).usage
        done: dict[str, Any] = {"type": "transcript.text.done", "text": "".join(texts), "choices": []}
        if self._form.stream_include_usage:
            tokens = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
            done["usage"] = {"type": "tokens", **tokens, **openai_usage(usage)}
        yield self._event(done) + sse.DONE

    def _delta(self, chunk: TranscriptionChunk) -> bytes:
        choice: dict[str, Any] = {"delta": {"content": chunk.text}}
        if chunk.finish_reason is not None:
            choice["finish_reason"] = chunk.finish_reason
        return self._event({"type": "transcript.text.delta", "delta": chunk.text, "choices": [choice]})

    def _event(self, content: dict[str, Any]) -> bytes:
        """Returns an event in the format of OpenAI (`type`, `delta`) and of vLLM (`choices`) at once."""
        return sse.encode_event(to_json(content)[:-1] + self._event_tail)
