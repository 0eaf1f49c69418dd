"""`/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from fastapi import Request
from pydantic_core import to_json

from cornserve.app.response_readers import ENDING
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.anthropic.message_events import MessageEvents
from cornserve.gateway.endpoints.anthropic.message_objects import (
    TokenCount,
    content_of,
    message_usage,
    new_message,
    stop_reason,
)
from cornserve.gateway.endpoints.anthropic.message_request import CountTokensRequest, CreateMessageRequest
from cornserve.gateway.endpoints.openai.chat import run_chat, stream_chunks
from cornserve.gateway.endpoints.openai.common_fields import check_app
from cornserve.gateway.endpoints.openai.tokenization import count_prompt_tokens
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.errors import ApiError
from cornserve.gateway.request.session import Session
from cornserve_tasklib.chat_request import ChatRequest

OPTIONAL_FIELDS = ("max_tokens",)
"""Fields that clients must send, also to apps that do not use them."""


async def create_message(request: Request, context: Context) -> SendResponse:
    """Responds to a conversation, with the whole message or (with `stream`) in events."""
    body = await read_fields(request, CreateMessageRequest, lambda body: body.media)
    handler = await _create_handler(request, context, body)
    message = MessageHandler(handler.ids.unique, body)
    if body.stream:
        return handler.stream(message.events, encode_error=partial(encode_error, handler.ids.public))
    return await handler.respond(message.respond)


async def count_tokens(request: Request, context: Context) -> SendResponse:
    """Returns the number of tokens of a prompt. Nothing is generated."""
    body = await read_fields(request, CountTokensRequest, lambda body: body.media)
    handler = await _create_handler(request, context, body)
    chat = tracked(ChatRequest, body.chat, prompt_only=True)

    async def respond(session: Session) -> bytes:
        count: TokenCount = {"input_tokens": await count_prompt_tokens(session, body.model, chat)}
        return to_json(count)

    return await handler.respond(respond)


async def _create_handler(request: Request, context: Context, body: CountTokensRequest) -> RequestHandler:
    media = body.media
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "chat", "/v1/messages")
    handler.set_field_names(body.rename_field)
    handler.set_media(media)
    return handler


def encode_error(request_id: str, error: ApiError) -> bytes:
    """Returns the event of an error."""
    return sse.encode_event(error.anthropic_content(request_id), "error")


class MessageHandler:
    """Runs the chat of one request and writes its message."""

    def __init__(self, id: str, body: CreateMessageRequest) -> None:
        self._chat = tracked(ChatRequest, body.chat, OPTIONAL_FIELDS)
        self._message = new_message(id, body.model)
        self._events = MessageEvents(self._message)

    async def respond(self, session: Session) -> bytes:
        chat, text = await run_chat(session, self._chat)
        choice = chat.choices[0]
        self._message["content"] = content_of(choice, text or choice.text)
        has_calls = bool(choice.tool_calls)
        self._message["stop_reason"] = stop_reason(choice.finish_reason, choice.stop_sequence, has_calls=has_calls)
        self._message["stop_sequence"] = choice.stop_sequence
        self._message["usage"] = message_usage(chat.usage)
        return to_json(self._message)

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        async for chunks in await stream_chunks(session, self._chat):
            if events := self._events.add(chunks):
                yield events
        yield self._events.end(await session.run(self._chat, ENDING))
