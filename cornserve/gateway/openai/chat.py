"""`/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Literal, Self

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import from_json

from cornserve.gateway import sse
from cornserve.gateway.apps import Deployed
from cornserve.gateway.context import Context
from cornserve.gateway.errors import ApiError, of_validation
from cornserve.gateway.serving import Serving
from cornserve.gateway.session import Session
from cornserve.task import Stream
from cornserve_tasklib.chat import ChatChunk, ChatRequest, ChatResponse, FinishReason, Usage

router = APIRouter()


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class ChatCompletionRequest(ChatRequest):
    """OpenAI's body: the chat itself, and how it is to be answered."""

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] = 1
    return_token_ids: bool = False
    """As in vLLM: choices and chunks also carry their token ids."""

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream: true")
        return self

    @property
    def chat(self) -> ChatRequest:
        return ChatRequest.model_construct(**{name: getattr(self, name) for name in ChatRequest.model_fields})


class CompletionUsage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> Self:
        return cls(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
        )


class Message(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class Choice(BaseModel):
    index: int = 0
    message: Message
    finish_reason: FinishReason
    logprobs: None = None
    token_ids: list[int] | None = None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage


class Delta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(BaseModel):
    index: int = 0
    delta: Delta
    finish_reason: FinishReason | None = None
    token_ids: list[int] | None = None


class ChatCompletionChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | None = None


@router.post("/v1/chat/completions", response_model=ChatCompletion)
async def create_chat_completion(request: Request, context: Context) -> Response:
    """Answers a chat, as a whole or (`stream`) in pieces."""
    body = parse(await request.body())
    serving = Serving(context, body.model, request)
    _check_chats(serving.deployed, body.model)
    exchange = Exchange(f"chatcmpl-{serving.id}", int(time.time()), body)
    return await (serving.stream(exchange.events) if body.stream else serving.answer(exchange.answer))


def parse(body: bytes) -> ChatCompletionRequest:
    """Raises the 400 that names what is wrong."""
    try:
        fields = from_json(body)
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {error}", code="invalid_json") from error
    try:
        # OpenAI's clients send null for "not given".
        return ChatCompletionRequest.model_validate(
            {name: value for name, value in fields.items() if value is not None} if isinstance(fields, dict) else fields
        )
    except ValidationError as error:
        raise of_validation(error) from error


def _check_chats(deployed: Deployed, name: str) -> None:
    app = deployed.app
    if not (app.request_type is ChatRequest and app.response_type is ChatResponse):
        raise ApiError(
            400, f"the app {name!r} takes no chats: it is called by POST /v1/apps/{name}/invoke", param="model"
        )


class Exchange:
    """One chat request and how its answer is written."""

    def __init__(self, id: str, created: int, body: ChatCompletionRequest) -> None:
        self._id = id
        self._created = created
        self._body = body
        self._chat = body.chat

    async def answer(self, session: Session) -> bytes:
        rendered = await session.run(self._chat, self._completion)
        if isinstance(rendered, Stream):
            text = "".join([chunk.text async for chunk in rendered])
            rendered = await session.run(self._chat, lambda response: self._complete(response, text))
        return rendered.model_dump_json(exclude=None if self._body.return_token_ids else _TOKEN_IDS).encode()

    def _completion(self, response: ChatResponse) -> ChatCompletion | Stream[ChatChunk]:
        if response.chunks.is_mapped and not response.text:
            return response.chunks
        return self._complete(response, response.text)

    def _complete(self, response: ChatResponse, text: str) -> ChatCompletion:
        choice = Choice(
            message=Message(content=text), finish_reason=response.finish_reason, token_ids=list(response.token_ids)
        )
        usage = CompletionUsage.of(response.usage)
        return ChatCompletion(id=self._id, created=self._created, model=self._body.model, choices=[choice], usage=usage)

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        chunks = await session.run(self._chat, _chunks)
        if isinstance(chunks, Stream):
            first = True
            async for chunk in chunks:
                yield self._event(Delta(role="assistant" if first else None, content=chunk.text), chunk.token_ids)
                first = False
        else:
            yield self._event(Delta(role="assistant", content=chunks))
        finish_reason, usage = await session.run(self._chat, lambda it: (it.finish_reason, it.usage))
        yield self._event(Delta(), finish_reason=finish_reason)
        if self._body.stream_options is not None and self._body.stream_options.include_usage:
            yield self._frame([], CompletionUsage.of(usage))
        yield sse.event(b"[DONE]")

    def _event(
        self, delta: Delta, token_ids: list[int] | None = None, finish_reason: FinishReason | None = None
    ) -> bytes:
        kept = token_ids if self._body.return_token_ids else None
        return self._frame([ChunkChoice(delta=delta, finish_reason=finish_reason, token_ids=kept)], None)

    def _frame(self, choices: list[ChunkChoice], usage: CompletionUsage | None) -> bytes:
        chunk = ChatCompletionChunk(
            id=self._id, created=self._created, model=self._body.model, choices=choices, usage=usage
        )
        return sse.event(chunk.model_dump_json(exclude_none=True).encode())


def _chunks(response: ChatResponse) -> Stream[ChatChunk] | str:
    """The stream of the answer, or its text where the task has made it itself."""
    return response.chunks if response.chunks.is_open else response.text


_TOKEN_IDS = {"choices": {"__all__": {"token_ids"}}}
