"""`/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, NotRequired

from fastapi import Request
from pydantic import BaseModel
from pydantic_core import to_json
from typing_extensions import TypedDict

from cornserve.app.media_slots import find_media_slots
from cornserve.app.response_readers import CHUNKS, ENDING, MAPPED_CHUNKS_OR_CHAT, WHOLE_CHAT, Ending, WholeChat
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.common_fields import (
    CompletionUsage,
    GenerationRequest,
    check_app,
    encode_choices,
    join_text,
    openai_usage,
)
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.session import Session
from cornserve.task import Stream
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import (
    ChatChoice,
    ChatChunk,
    FinishReason,
    TokenLogprobs,
    ToolCallDelta,
)
from cornserve_tasklib.messages import ToolCall


class ChatCompletionRequest(ChatRequest, GenerationRequest):
    """OpenAI's request body: the chat and the options of the response."""

    verbosity: Literal["low", "medium", "high"] | None = None
    """Accepted and not used."""
    prediction: dict[str, Any] | None = None
    """Accepted and not used: it would only make the response faster."""
    modalities: list[Literal["text"]] | None = None

    @property
    def chat(self) -> ChatRequest:
        return tracked(ChatRequest, self)


# Responses are typed dictionaries: pydantic models would be validated, which takes ten times as long.


class Message(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[ToolCall]]
    reasoning_content: NotRequired[str]


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


class ChunkChoice(TypedDict):
    index: int
    delta: Delta
    finish_reason: NotRequired[FinishReason]
    logprobs: NotRequired[Logprobs]
    token_ids: NotRequired[list[int]]


async def create_chat_completion(request: Request, context: Context) -> SendResponse:
    """Responds to a chat, with the whole message or (with `stream`) in chunks."""
    body = await read_fields(request, ChatCompletionRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "chat")
    handler.set_media(find_media_slots(body))
    chat = ChatHandler(f"chatcmpl-{handler.id}", int(time.time()), body)
    return handler.stream(chat.events) if body.stream else await handler.respond(chat.respond)


async def run_chat(session: Session, chat: ChatRequest) -> tuple[WholeChat, str]:
    """Returns the response, and the text that replaces the text of its first choice unless it is empty."""
    result = await session.run(chat, MAPPED_CHUNKS_OR_CHAT)
    if isinstance(result, Stream):
        text = await join_text(result)
        return await session.run(chat, WHOLE_CHAT), text
    return result, ""


async def stream_chunks(session: Session, chat: ChatRequest) -> AsyncGenerator[Sequence[ChatChunk], None]:
    """Yields the chunks of the response, those that have arrived together in one sequence."""
    chunks = await session.run(chat, CHUNKS)
    if isinstance(chunks, Stream):
        async for batch in chunks.batches():
            yield batch
    else:
        yield chunks


class ChatHandler:
    """Runs one chat request and writes its response."""

    def __init__(self, id: str, created: int, body: ChatCompletionRequest) -> None:
        self._id = id
        self._created = created
        self._body = body
        self._chat = body.chat
        self._chunk_head = b""
        """The JSON that all chunks begin with."""
        self._started: set[int] = set()
        """The indices of the choices whose first chunk has been sent."""

    async def respond(self, session: Session) -> bytes:
        return to_json(self._completion(*await run_chat(session, self._chat)))

    def _completion(self, chat: WholeChat, text: str) -> ChatCompletion:
        """Returns the completion. `text` replaces the text of the first choice, unless it is empty."""
        choices = [self._choice(index, choice) for index, choice in enumerate(chat.choices)]
        if text:
            choices[0]["message"]["content"] = text
        return {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._body.model,
            "choices": choices,
            "usage": openai_usage(chat.usage),
        }

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
        head = {"id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": self._body.model}
        self._chunk_head = to_json(head)[:-1] + b',"choices":'
        async for batch in stream_chunks(session, self._chat):
            if events := b"".join([self._chunk_event(chunk) for chunk in batch]):
                yield events
        yield self._last_events(await session.run(self._chat, ENDING))

    def _last_events(self, ending: Ending) -> bytes:
        reasons = enumerate(ending.finish_reasons)
        events = [self._event([{"index": index, "delta": {}, "finish_reason": reason}]) for index, reason in reasons]
        if self._body.wants_usage:
            events.append(self._event([], openai_usage(ending.usage)))
        return b"".join([*events, sse.encode_event(b"[DONE]")])

    def _chunk_event(self, chunk: ChatChunk) -> bytes:
        """Returns the event of a chunk, or b"" if its tokens do not complete any text yet: they may be a part of a
        character, of a stop string or of a tool call."""
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
        return self._event([choice])

    def _event(self, choices: list[ChunkChoice], usage: CompletionUsage | None = None) -> bytes:
        tail = b"}" if usage is None else b',"usage":' + to_json(usage) + b"}"
        return sse.encode_event(self._chunk_head + encode_choices(choices) + tail)


def _message(choice: ChatChoice) -> Message:
    content = choice.text if choice.text or not choice.tool_calls else None
    message: Message = {"role": "assistant", "content": content, "refusal": None}
    if choice.tool_calls is not None:
        message["tool_calls"] = choice.tool_calls
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    return message


def _call_delta(call: ToolCallDelta) -> CallDelta:
    function = FunctionDelta(name=call.name, arguments=call.arguments)
    return CallDelta(index=call.index, id=call.id, type="function" if call.id else None, function=function)
