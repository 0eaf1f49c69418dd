"""`/v1/responses`, without stored responses."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from fastapi import Request
from pydantic_core import to_json

from cornserve.app.response_readers import ENDING
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints.openai.chat import run_chat, stream_chunks
from cornserve.gateway.endpoints.openai.common_fields import check_app
from cornserve.gateway.endpoints.openai.response_events import ResponseEvents
from cornserve.gateway.endpoints.openai.response_objects import (
    InputTokenCount,
    end_response,
    new_response,
    output_items,
)
from cornserve.gateway.endpoints.openai.response_request import CreateResponseRequest, rename_field
from cornserve.gateway.endpoints.openai.tokenization import count_prompt_tokens
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.errors import ApiError
from cornserve.gateway.request.session import Session
from cornserve_tasklib.chat_request import ChatRequest


async def create_response(request: Request, context: Context) -> SendResponse:
    """Responds to a conversation, with the whole response or (with `stream`) in events."""
    body = await read_fields(request, CreateResponseRequest, lambda body: body.media)
    handler = await _create_handler(request, context, body)
    response = ResponseHandler(handler.ids.unique, int(time.time()), body)
    if body.stream:
        return handler.stream(response.events, encode_error=response.encode_error)
    return await handler.respond(response.respond)


async def count_input_tokens(request: Request, context: Context) -> SendResponse:
    """Returns the number of tokens of a prompt. Nothing is generated."""
    body = await read_fields(request, CreateResponseRequest, lambda body: body.media)
    handler = await _create_handler(request, context, body)
    chat = tracked(ChatRequest, body.chat, prompt_only=True)

    async def respond(session: Session) -> bytes:
        count: InputTokenCount = {
            "object": "response.input_tokens",
            "input_tokens": await count_prompt_tokens(session, body.model, chat),
        }
        return to_json(count)

    return await handler.respond(respond)


async def _create_handler(request: Request, context: Context, body: CreateResponseRequest) -> RequestHandler:
    media = body.media
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "chat", "/v1/responses")
    handler.set_field_names(rename_field)
    handler.set_media(media)
    return handler


class ResponseHandler:
    """Runs the chat of one request and writes its response."""

    def __init__(self, id: str, created: int, body: CreateResponseRequest) -> None:
        self._id = id
        self._chat = tracked(ChatRequest, body.chat)
        self._response = new_response(id, created, body.echo())
        self._custom_tools = body.custom_tools
        self._events = ResponseEvents(id, self._response, self._custom_tools)

    async def respond(self, session: Session) -> bytes:
        chat, text = await run_chat(session, self._chat)
        choice = chat.choices[0]
        self._response["output"] = output_items(self._id, choice, text or choice.text, self._custom_tools)
        end_response(self._response, choice.finish_reason, chat.usage)
        return to_json(self._response)

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        async for chunks in await stream_chunks(session, self._chat):
            if events := self._events.add(chunks):
                yield events
        yield self._events.end(await session.run(self._chat, ENDING))

    def encode_error(self, error: ApiError) -> bytes:
        return self._events.fail(error)
