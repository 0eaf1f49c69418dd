"""`/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Literal, NotRequired

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel
from pydantic_core import to_json
from typing_extensions import TypedDict

from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai import answers
from cornserve.gateway.endpoints.openai.answers import joined
from cornserve.gateway.endpoints.openai.body import CompletionUsage, Generating, check_app, parse, told
from cornserve.gateway.endpoints.openapi import takes
from cornserve.gateway.endpoints.plain import PlainRoute
from cornserve.gateway.endpoints.serving import Serving
from cornserve.gateway.http.body import json_of
from cornserve.gateway.request.session import Session
from cornserve.gateway.request.unused_fields import tracked
from cornserve.task import Stream
from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.messages import ToolCall
from cornserve_tasklib.response import ChatChoice, ChatChunk, ChatResponse, FinishReason, TokenLogprobs, ToolCallDelta

router = APIRouter(route_class=PlainRoute)


class ChatCompletionRequest(ChatRequest, Generating):
    """OpenAI's body: the chat itself, and how it is to be answered."""

    modalities: list[Literal["text"]] | None = None

    @property
    def chat(self) -> ChatRequest:
        return tracked(ChatRequest, self)


# What answers are made of is plain: a model is checked when it is made, and costs ten times as much.


class Message(TypedDict):
    role: Literal["assistant"]
    content: str | None
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


@router.post("/v1/chat/completions", response_model=ChatCompletion, openapi_extra=takes(ChatCompletionRequest))
async def create_chat_completion(request: Request, context: Context) -> Response:
    """Answers a chat, as a whole or (`stream`) in pieces."""
    body = parse(json_of(request), ChatCompletionRequest)
    serving = Serving(context, body.model, request)
    check_app(serving.deployed, body.model, "/v1/chat/completions", "chats")
    serving.take_images_of(body)
    exchange = Exchange(f"chatcmpl-{serving.id}", int(time.time()), body)
    return await (serving.stream(exchange.events) if body.stream else serving.answer(exchange.answer))


class Exchange:
    """One chat request and how its answer is written."""

    def __init__(self, id: str, created: int, body: ChatCompletionRequest) -> None:
        self._id = id
        self._created = created
        self._body = body
        self._chat = body.chat
        self._frame_head = b""
        """What all chunks begin with."""
        self._greeted: set[int] = set()
        """The choices of which the client has a piece."""

    async def answer(self, session: Session) -> bytes:
        rendered = await session.run(self._chat, self._rendered)
        if isinstance(rendered, Stream):
            text = await joined(rendered)
            rendered = await session.run(self._chat, lambda response: self._completion(response, text))
        return to_json(rendered)

    def _rendered(self, response: ChatResponse) -> ChatCompletion | Stream[ChatChunk]:
        text = answers.text(response)
        return text if isinstance(text, Stream) else self._completion(response, text)

    def _completion(self, response: ChatResponse, text: str) -> ChatCompletion:
        choices = [self._choice(index, choice) for index, choice in enumerate(response.choices)]
        if text:
            choices[0]["message"]["content"] = text
        return {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._body.model,
            "choices": choices,
            "usage": told(response.usage),
        }

    def _choice(self, index: int, choice: ChatChoice) -> Choice:
        made: Choice = {
            "index": index,
            "message": _message(choice),
            "finish_reason": choice.finish_reason,
            "logprobs": None if choice.logprobs is None else {"content": choice.logprobs},
        }
        if self._body.return_token_ids:
            made["token_ids"] = choice.token_ids
        return made

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        head = {"id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": self._body.model}
        self._frame_head = to_json(head)[:-1] + b',"choices":'
        pieces = await session.run(self._chat, answers.pieces)
        if isinstance(pieces, Stream):
            async for chunks in pieces.batches():
                if events := b"".join([self._piece(chunk) for chunk in chunks]):
                    yield events
        else:
            yield b"".join([self._piece(chunk) for chunk in pieces])
        yield self._ending(await session.run(self._chat, answers.ending))

    def _ending(self, ending: answers.Ending) -> bytes:
        reasons = enumerate(ending.finish_reasons)
        events = [self._frame([{"index": index, "delta": {}, "finish_reason": reason}]) for index, reason in reasons]
        if self._body.wants_usage:
            events.append(self._frame([], told(ending.usage)))
        return b"".join([*events, sse.event(b"[DONE]")])

    def _piece(self, chunk: ChatChunk) -> bytes:
        """The event of a chunk. None (b"") where tokens make no text yet: half a character, or part of what could be a
        stop string or a tool call."""
        delta: Delta = {}
        if chunk.index not in self._greeted:
            self._greeted.add(chunk.index)
            delta["role"] = "assistant"
        if chunk.text or not (chunk.reasoning or chunk.tool_calls):
            if not (chunk.text or delta or chunk.logprobs or self._body.return_token_ids):
                return b""
            delta["content"] = chunk.text
        if chunk.tool_calls:
            delta["tool_calls"] = [_call(call) for call in chunk.tool_calls]
        if chunk.reasoning:
            delta["reasoning_content"] = chunk.reasoning
        choice: ChunkChoice = {"index": chunk.index, "delta": delta}
        if chunk.logprobs is not None:
            choice["logprobs"] = {"content": chunk.logprobs}
        if self._body.return_token_ids:
            choice["token_ids"] = chunk.token_ids
        return self._frame([choice])

    def _frame(self, choices: list[ChunkChoice], usage: CompletionUsage | None = None) -> bytes:
        tail = b"}" if usage is None else b',"usage":' + to_json(usage) + b"}"
        return sse.event(self._frame_head + to_json(choices, exclude_none=True) + tail)


def _message(choice: ChatChoice) -> Message:
    message: Message = {"role": "assistant", "content": choice.text if choice.text or not choice.tool_calls else None}
    if choice.tool_calls is not None:
        message["tool_calls"] = choice.tool_calls
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    return message


def _call(call: ToolCallDelta) -> CallDelta:
    function = FunctionDelta(name=call.name, arguments=call.arguments)
    return CallDelta(index=call.index, id=call.id, type="function" if call.id else None, function=function)
