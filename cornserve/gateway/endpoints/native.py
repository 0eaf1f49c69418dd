"""`/v1/apps/{name}/invoke`: calls any app with its own request and response types."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import Request
from pydantic_core import to_json

from cornserve.app.response_readers import JSON, STREAMS, RawJson, encode_item
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.read_request import read_native
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.merge_streams import merge_streams
from cornserve.gateway.request.session import Session


async def invoke(name: str, request: Request, context: Context) -> SendResponse:
    """Returns the app's response as JSON, in which streams are null.

    Clients that accept `text/event-stream` get an `item` event for each item of the streams, and a `result` event at
    the end.
    """
    handler = await RequestHandler.create(context, name, request)
    app_request, media = await read_native(request, lambda body: handler.served_app.code.parse(body or b"null"))
    handler.set_media(media)
    native = NativeHandler(app_request)
    if "text/event-stream" in request.headers.get("accept", ""):
        return handler.stream(native.events)
    return await handler.respond(native.respond)


class NativeHandler:
    """Runs one request and writes its response."""

    def __init__(self, request: Any) -> None:
        self._request = request

    async def respond(self, session: Session) -> bytes:
        return await session.run(self._request, JSON)

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        streams = await session.run(self._request, STREAMS)
        async with aclosing(merge_streams(streams)) as batches:
            async for name, batch in batches:
                head = b'{"stream":' + to_json(name) + b',"item":'
                yield b"".join([sse.encode_event(head + _to_json(item) + b"}", "item") for item in batch])
        yield sse.encode_event(await self.respond(session), "result")


def _to_json(item: Any) -> bytes:
    return item if isinstance(item, RawJson) else encode_item(item)
