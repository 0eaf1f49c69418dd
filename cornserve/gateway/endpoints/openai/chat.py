"""`/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import MinLen
from fastapi import Request
from pydantic import BaseModel, Field, ValidationInfo, field_validator
from pydantic_core import to_json
from typing_extensions import TypedDict

from cornserve.app.media_slots import find_media_slots
from cornserve.app.response_readers import CHUNKS, ENDING, MAPPED_CHUNKS_OR_CHAT, WHOLE_CHAT, Ending, WholeChat
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.chunk_events import ChunkEvents
from cornserve.gateway.endpoints.openai.common_fields import (
    CompletionUsage,
    CostReader,
    GenerationRequest,
    check_app,
    join_text,
    openai_usage,
)
from cornserve.gateway.endpoints.openai.spoken_chat import (
    CHUNK,
    AudioOutput,
    OutputModality,
    SpokenChatHandler,
    rename_field,
    spoken_request,
)
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.errors import ApiError
from cornserve.gateway.request.session import Session
from cornserve.task import Stream
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import (
    ChatChoice,
    ChatChunk,
    FinishReason,
    PromptLogprobs,
    TokenLogprobs,
    ToolCallDelta,
)
from cornserve_tasklib.generated_image import GeneratedImage
from cornserve_tasklib.messages import ToolCall
from cornserve_tasklib.speaking_chat import SpokenChatRequest


class ChatCompletionRequest(ChatRequest, GenerationRequest):
    """OpenAI's request body: the chat and the options of the response."""

    verbosity: Literal["low", "medium", "high"] | None = None
    """Accepted and not used."""
    prediction: dict[str, Any] | None = None
    """Accepted and not used: it would only make the response faster."""
    modalities: Annotated[list[OutputModality], MinLen(1)] | None = None
    """Whether the response is text alone, or also spoken."""
    audio: Annotated[AudioOutput | None, Field(validate_default=True)] = None
    """The audio of a spoken response. Requires the modality `audio`."""

    @field_validator("modalities")
    @classmethod
    def _check_modalities(cls, modalities: list[OutputModality] | None) -> list[OutputModality] | None:
        if modalities is not None and "text" not in modalities:
            raise ValueError('a response always has a text: use ["text", "audio"]')
        return modalities

    @field_validator("audio")
    @classmethod
    def _check_audio(cls, audio: AudioOutput | None, info: ValidationInfo) -> AudioOutput | None:
        speaks = "audio" in (info.data.get("modalities") or ())
        if speaks and audio is None:
            raise ValueError("is required for the modality 'audio': add it, with voice and format")
        asked = [field for field in ("logprobs", "prompt_logprobs") if info.data.get(field) not in (None, False)]
        if audio is not None and asked:
            raise ValueError(f"a spoken response has no log probabilities: remove {asked[0]}")
        if audio is not None and not speaks and "modalities" in info.data:
            raise ValueError('needs modalities: ["text", "audio"]')
        if audio is not None and audio.format != "pcm16" and info.data.get("stream"):
            raise ValueError(f"a stream of audio has the format 'pcm16', not {audio.format!r}")
        return audio

    @property
    def chat(self) -> ChatRequest:
        return tracked(ChatRequest, self)


# Responses are typed dictionaries: pydantic models would be validated, which takes ten times as long.


class MessageImage(TypedDict):
    type: Literal["image_url"]
    image_url: dict[Literal["url"], str]


class Message(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[ToolCall]]
    reasoning_content: NotRequired[str]
    images: NotRequired[list[MessageImage]]


class Logprobs(TypedDict):
    content: list[TokenLogprobs]


class Choice(TypedDict):
    index: int
    message: Message
    finish_reason: FinishReason
    logprobs: Logprobs | None
    token_ids: NotRequired[list[int]]


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage
    prompt_logprobs: NotRequired[PromptLogprobs]


class FunctionDelta(BaseModel):
    name: str | None = None
    arguments: str | None = None


class CallDelta(BaseModel):
    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class Delta(TypedDict, total=False):
    role: Literal["assistant"]
    content: str
    tool_calls: list[CallDelta]
    reasoning_content: str
    images: list[MessageImage]


class ChunkChoice(TypedDict):
    index: int
    delta: Delta
    logprobs: NotRequired[Logprobs]
    token_ids: NotRequired[list[int]]


async def create_chat_completion(request: Request, context: Context) -> SendResponse:
    """Responds to a chat, with the whole message or (with `stream`) in chunks."""
    body = await read_fields(request, ChatCompletionRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    speaks = "spoken chat" in handler.served_app.code.operations
    check_app(handler.served_app, body.model, "spoken chat" if speaks else "chat")
    handler.set_media(find_media_slots(body))
    chat = _create_handler(
        f"chatcmpl-{handler.ids.unique}", body, handler.cost if body.include_cost else None, speaks=speaks
    )
    if speaks:
        handler.set_field_names(rename_field)
    return handler.stream(chat.events) if body.stream else await handler.respond(chat.respond)


def _create_handler(
    id: str, body: ChatCompletionRequest, cost: CostReader | None, *, speaks: bool
) -> ChatHandler | SpokenChatHandler:
    created = int(time.time())
    if not speaks:
        if body.audio is not None:
            message = f'modalities: the app {body.model!r} cannot speak: use ["text"]'
            raise ApiError(400, message, param="modalities", code="invalid_value")
        return ChatHandler(id, created, body, body.chat, cost)
    request = spoken_request(body.chat, body.audio)
    if body.audio is None:
        return ChatHandler(id, created, body, request, cost)
    return SpokenChatHandler(id, created, body.model, request, cost, wants_usage=body.wants_usage)


async def run_chat(session: Session, chat: ChatRequest | SpokenChatRequest) -> tuple[WholeChat, str]:
    """Returns the response, and the text that replaces the text of its first choice unless it is empty."""
    result = await session.run(chat, MAPPED_CHUNKS_OR_CHAT)
    if isinstance(result, Stream):
        text = await join_text(result)
        return await session.run(chat, WHOLE_CHAT), text
    return result, ""


async def stream_chunks(session: Session, chat: ChatRequest | SpokenChatRequest) -> AsyncIterator[Sequence[ChatChunk]]:
    """Returns the chunks of the response, those that have arrived together in one sequence."""
    chunks = await session.run(chat, CHUNKS)
    return chunks.batches() if isinstance(chunks, Stream) else _one_batch(chunks)


async def _one_batch(chunks: Sequence[ChatChunk]) -> AsyncIterator[Sequence[ChatChunk]]:
    yield chunks


class ChatHandler:
    """Runs one chat request and writes its response.

    Args:
        request: the request for the app.
        cost: returns the cost of the request, if its usage contains it.
    """

    def __init__(
        self,
        id: str,
        created: int,
        body: ChatCompletionRequest,
        request: ChatRequest | SpokenChatRequest,
        cost: CostReader | None = None,
    ) -> None:
        self._id = id
        self._created = created
        self._body = body
        self._chat = request
        self._cost = cost
        self._events = ChunkEvents(id, CHUNK, created, body.model, with_usage=body.wants_continuous_usage)
        self._started: set[int] = set()
        """The indices of the choices whose first chunk has been sent."""

    async def respond(self, session: Session) -> bytes:
        return to_json(self._completion(*await run_chat(session, self._chat)))

    def _completion(self, chat: WholeChat, text: str) -> ChatCompletion:
        """Returns the completion. `text` replaces the text of the first choice, unless it is empty."""
        choices = [self._choice(index, choice) for index, choice in enumerate(chat.choices)]
        if text:
            choices[0]["message"]["content"] = text
        if chat.images:
            choices[0]["message"]["images"] = _message_images(chat.images)
        completion: ChatCompletion = {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._body.model,
            "choices": choices,
            "usage": openai_usage(chat.usage, self._cost),
        }
        if chat.prompt_logprobs is not None:
            completion["prompt_logprobs"] = chat.prompt_logprobs
        return completion

    def _choice(self, index: int, choice: ChatChoice) -> Choice:
        result: Choice = {
            "index": index,
            "message": _message(choice),
            "finish_reason": choice.finish_reason,
            "logprobs": None if choice.logprobs is None else {"content": choice.logprobs},
        }
        if self._body.return_token_ids:
            result["token_ids"] = choice.token_ids
        return result

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        async for batch in await stream_chunks(session, self._chat):
            if events := b"".join([self._chunk_event(chunk) for chunk in batch]):
                yield events
        yield self._last_events(await session.run(self._chat, ENDING))

    def _last_events(self, ending: Ending) -> bytes:
        events = [
            self._events.choice(index, {"index": index, "delta": {}}, reason)
            for index, reason in enumerate(ending.finish_reasons)
        ]
        if ending.images:
            delta: Delta = {"images": _message_images(ending.images)}
            events.insert(0, self._events.choice(0, {"index": 0, "delta": delta}))
        if self._body.wants_usage:
            events.append(self._events.usage(openai_usage(ending.usage, self._cost)))
        return b"".join([*events, sse.DONE])

    def _chunk_event(self, chunk: ChatChunk) -> bytes:
        """Returns the event of a chunk, or b"" if its tokens do not complete any text yet: they may be a part of a
        character, of a stop string or of a tool call."""
        self._events.count(chunk.index, chunk)
        delta: Delta = {}
        if chunk.index not in self._started:
            self._started.add(chunk.index)
            delta["role"] = "assistant"
        if chunk.text or not (chunk.reasoning or chunk.tool_calls):
            if not (chunk.text or delta or chunk.logprobs or self._body.return_token_ids):
                return b""
            delta["content"] = chunk.text
        if chunk.tool_calls:
            delta["tool_calls"] = [_call_delta(call) for call in chunk.tool_calls]
        if chunk.reasoning:
            delta["reasoning_content"] = chunk.reasoning
        choice: ChunkChoice = {"index": chunk.index, "delta": delta}
        if chunk.logprobs is not None:
            choice["logprobs"] = {"content": chunk.logprobs}
        if self._body.return_token_ids:
            choice["token_ids"] = chunk.token_ids
        return self._events.choice(chunk.index, choice)


def _message(choice: ChatChoice) -> Message:
    content = choice.text if choice.text or not choice.tool_calls else None
    message: Message = {"role": "assistant", "content": content, "refusal": None}
    if choice.tool_calls is not None:
        message["tool_calls"] = choice.tool_calls
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    return message


def _message_images(images: Sequence[GeneratedImage]) -> list[MessageImage]:
    """Returns images in the form of other servers. OpenAI's API does not define any."""
    return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image.b64_json}"}} for image in images]


def _call_delta(call: ToolCallDelta) -> CallDelta:
    function = FunctionDelta(name=call.name, arguments=call.arguments)
    return CallDelta(index=call.index, id=call.id, type="function" if call.id else None, function=function)
