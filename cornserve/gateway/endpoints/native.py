"""`/v1/apps/{name}/invoke`: any app, with its own request and response types."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openapi import takes_any_json
from cornserve.gateway.endpoints.plain import PlainRoute
from cornserve.gateway.endpoints.serving import Serving
from cornserve.gateway.errors import of_validation
from cornserve.gateway.http.body import body_of
from cornserve.gateway.http.headers import header
from cornserve.gateway.request.merge import merge
from cornserve.gateway.request.session import Session
from cornserve.task import Stream

router = APIRouter(route_class=PlainRoute)


@router.post("/v1/apps/{name}/invoke", openapi_extra=takes_any_json())
async def invoke(name: str, request: Request, context: Context) -> Response:
    """Answers with the app's response as JSON, in which streams are null; or, to clients that accept
    `text/event-stream`, with an `item` event for each item of its streams and a `result` event at the end.
    """
    serving = Serving(context, name, request)
    try:
        value = serving.deployed.request.validate_json(body_of(request) or b"null")
    except ValidationError as error:
        raise of_validation(error) from error
    serving.take_images_of(value)
    exchange = Exchange(value, serving.deployed.response)
    if "text/event-stream" in (header(request.scope, b"accept") or ""):
        return await serving.stream(exchange.events)
    return await serving.answer(exchange.answer)


class Exchange:
    """One request and how its response is written."""

    def __init__(self, request: Any, response: TypeAdapter[Any]) -> None:
        self._request = request
        self._response = response

    async def answer(self, session: Session) -> bytes:
        return await session.run(self._request, self._dump)

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        streams = await session.run(self._request, _streams)
        async with aclosing(merge(streams)) as batches:
            async for name, batch in batches:
                yield b"".join([sse.event(to_json({"stream": name, "item": item}), "item") for item in batch])
        yield sse.event(await self.answer(session), "result")

    def _dump(self, response: Any) -> bytes:
        # Not dump_json: that hides the errors of invocations whose values it reads.
        return to_json(self._response.dump_python(response, mode="json"))


def _streams(response: Any) -> dict[str, Stream[Any]]:
    """The response's open streams, by field."""
    if not isinstance(response, BaseModel):
        return {}
    fields = {name for name, field in type(response).model_fields.items() if _is_stream(field.annotation)}
    return {name: stream for name in sorted(fields) if (stream := getattr(response, name)).is_open}


def _is_stream(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", annotation) is Stream
