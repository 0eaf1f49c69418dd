"""`/v1/apps/{name}/invoke`: calls any app with its own request and response types."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import Request
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.http.request_body import read_validated
from cornserve.gateway.request.merge_streams import merge_streams
from cornserve.gateway.request.session import Session
from cornserve.task import Stream


async def invoke(name: str, request: Request, context: Context) -> SendResponse:
    """Returns the app's response as JSON, in which streams are null.

    Clients that accept `text/event-stream` get an `item` event for each item of the streams, and a `result` event at
    the end.
    """
    handler = RequestHandler(context, name, request)
    value = read_validated(request, lambda body: handler.served_app.request.validate_json(body or b"null"))
    handler.find_images(value)
    native = NativeHandler(value, handler.served_app.response)
    if "text/event-stream" in request.headers.get("accept", ""):
        return handler.stream(native.events)
    return await handler.respond(native.respond)


class NativeHandler:
    """Runs one request and writes its response."""

    def __init__(self, request: Any, response: TypeAdapter[Any]) -> None:
        self._request = request
        self._response = response

    async def respond(self, session: Session) -> bytes:
        return await session.run(self._request, self._dump)

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        streams = await session.run(self._request, _open_streams)
        async with aclosing(merge_streams(streams)) as batches:
            async for name, batch in batches:
                yield b"".join([sse.encode_event(to_json({"stream": name, "item": item}), "item") for item in batch])
        yield sse.encode_event(await self.respond(session), "result")

    def _dump(self, response: Any) -> bytes:
        # Not dump_json: it would hide the errors of invocations whose values it reads.
        return to_json(self._response.dump_python(response, mode="json"))


def _open_streams(response: Any) -> dict[str, Stream[Any]]:
    """Returns the open streams of the response by field."""
    if not isinstance(response, BaseModel):
        return {}
    fields = {name for name, field in type(response).model_fields.items() if _is_stream(field.annotation)}
    return {name: stream for name in sorted(fields) if (stream := getattr(response, name)).is_open}


def _is_stream(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", annotation) is Stream
