"""Chat completions with text and audio."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import copy
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import MaxLen, MinLen
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from cornserve.app.response_readers import ENDING, SPOKEN_STREAMS, WHOLE_CHAT, WHOLE_SPEECH, RawJson, WholeSpeech
from cornserve.app.unused_fields import tracked
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.chunk_events import ChunkEvents
from cornserve.gateway.endpoints.openai.common_fields import CostReader, openai_usage
from cornserve.gateway.errors import ApiError
from cornserve.gateway.request.merge_streams import merge_streams
from cornserve.gateway.request.session import Session
from cornserve.validation_errors import describe_error
from cornserve_tasklib.audio_format import AudioFormat
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import ChatChunk, FinishReason
from cornserve_tasklib.sampling_fields import STRICT
from cornserve_tasklib.speaking_chat import SpokenChatRequest
from cornserve_tasklib.talker import SpokenChunk

CHUNK = "chat.completion.chunk"
"""OpenAI's name of the chunks of chat completions."""

OutputModality = Literal["text", "audio"]


Item = TypeVar("Item", bound=BaseModel)


class AudioOutput(BaseModel):
    """The audio of a response, with the names of OpenAI's API."""

    model_config = STRICT

    voice: Annotated[str, MinLen(1), MaxLen(100)]
    """One of the model's voices."""
    format: Literal["wav", "mp3", "flac", "opus", "aac", "pcm16"]
    """The format of the file, or `pcm16` for samples without a header."""

    @property
    def file_format(self) -> AudioFormat:
        return "pcm" if self.format == "pcm16" else self.format


def rename_field(text: str) -> str:
    """Replaces the field of a `SpokenChatRequest` at the start of a text."""
    return f"audio.{text}" if text.startswith("voice") else text


def spoken_request(chat: ChatRequest, audio: AudioOutput | None) -> SpokenChatRequest:
    """Returns the request of an app that speaks, for text alone without `audio`. Raises an `ApiError` (400)."""
    chosen: dict[str, Any] = {"modalities": ["text"]}
    if audio is not None:
        chosen = {"voice": audio.voice, "response_format": audio.file_format}
        if chat.seed is not None:
            chosen["seed"] = chat.seed % 2**63  # The seed of speech is not negative.
    try:
        return tracked(SpokenChatRequest, SpokenChatRequest(chat=copy(chat), **chosen))
    except ValidationError as error:
        message = describe_error(error.errors(include_url=False, include_context=False)[0])
        raise ApiError(400, message, param=message.partition(":")[0], code="invalid_value") from error


class SpokenChatHandler:
    """Runs one chat whose response is spoken, and writes the response."""

    def __init__(
        self,
        id: str,
        created: int,
        model: str,
        request: SpokenChatRequest,
        cost: CostReader | None,
        *,
        wants_usage: bool,
    ) -> None:
        self._id = id
        self._created = created
        self._model = model
        self._request = request
        self._cost = cost
        self._wants_usage = wants_usage

    async def respond(self, session: Session) -> bytes:
        chat, speech = await session.run(self._request, WHOLE_CHAT), await self._speech(session)
        choice = chat.choices[0]
        audio = self._audio() | self._expiry() | {"data": speech.audio, "transcript": choice.text}
        message = {"role": "assistant", "content": None, "refusal": None, "audio": audio}
        reason = _finish_reason(choice.finish_reason, speech)
        return to_json(
            {
                "id": self._id,
                "object": "chat.completion",
                "created": self._created,
                "model": self._model,
                "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
                "usage": openai_usage(chat.usage, self._cost),
            }
        )

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        """Yields the transcript and the samples while they are generated."""
        events = ChunkEvents(self._id, CHUNK, self._created, self._model)

        def event(reason: FinishReason | None = None, **delta: Any) -> bytes:
            return events.choice(0, {"index": 0, "delta": delta}, reason)

        role: dict[str, Any] = {"role": "assistant"}
        async with aclosing(self._audio_deltas(session)) as deltas:
            async for delta in deltas:
                yield event(**role, audio=self._audio() | delta)
                role = {}
        ending, speech = await session.run(self._request, ENDING), await self._speech(session)
        yield event(audio=self._audio() | self._expiry())
        yield event(_finish_reason(ending.finish_reasons[0], speech))
        if self._wants_usage:
            yield events.usage(openai_usage(ending.usage, self._cost))
        yield sse.DONE

    async def _audio_deltas(self, session: Session) -> AsyncGenerator[dict[str, str], None]:
        streams = await session.run(self._request, SPOKEN_STREAMS)
        if "audio" not in streams:
            raise _no_audio()
        if "text" not in streams:
            chat = await session.run(self._request, WHOLE_CHAT)
            yield {"transcript": chat.choices[0].text}
        async with aclosing(merge_streams(streams)) as batches:
            async for name, batch in batches:
                for item in batch:
                    if name == "audio":
                        session.record_audio()
                        yield {"data": _parse(SpokenChunk, item).pcm}
                    elif text := _parse(ChatChunk, item).text:
                        yield {"transcript": text}

    async def _speech(self, session: Session) -> WholeSpeech:
        speech = await session.run(self._request, WHOLE_SPEECH)
        if speech is None:
            raise _no_audio()
        return speech

    def _audio(self) -> dict[str, Any]:
        return {"id": f"audio_{self._id.partition('-')[2]}"}

    def _expiry(self) -> dict[str, Any]:
        # OpenAI's servers keep the audio until then for further requests.
        return {"expires_at": self._created}


def _parse(item_type: type[Item], item: Item | RawJson) -> Item:
    return item_type.model_validate_json(item) if isinstance(item, RawJson) else item


def _finish_reason(text: FinishReason, speech: WholeSpeech) -> FinishReason:
    return text if speech.is_complete else "length"


def _no_audio() -> ApiError:
    return ApiError(500, "the app has responded without audio", code="no_audio")
