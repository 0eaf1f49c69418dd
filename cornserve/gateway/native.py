"""`/v1/apps/{name}/invoke`: any app, with its own request and response types."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from cornserve.gateway import sse
from cornserve.gateway.context import Context
from cornserve.gateway.errors import of_validation
from cornserve.gateway.serving import Serving
from cornserve.gateway.session import Session
from cornserve.task import Stream

router = APIRouter()


@router.post("/v1/apps/{name}/invoke")
async def invoke(name: str, request: Request, context: Context) -> Response:
    """Answers with the app's response as JSON, in which streams are null; or, to clients that accept
    `text/event-stream`, with an `item` event for each item of its streams and a `result` event at the end.
    """
    serving = Serving(context, name, request)
    try:
        value = serving.deployed.request.validate_json(await request.body() or b"null")
    except ValidationError as error:
        raise of_validation(error) from error
    exchange = Exchange(value, serving.deployed.response)
    if "text/event-stream" in request.headers.get("accept", ""):
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
        async with aclosing(merge(streams)) as items:
            async for name, item in items:
                yield sse.event(to_json({"stream": name, "item": item}), "item")
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


async def merge(streams: dict[str, Stream[Any]]) -> AsyncGenerator[tuple[str, Any], None]:
    """The items of all streams as they arrive. One that fails ends the others."""
    iterators = {name: aiter(stream) for name, stream in streams.items()}
    coming = {asyncio.ensure_future(anext(iterator)): name for name, iterator in iterators.items()}
    try:
        while coming:
            arrived, _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for arrival in arrived:
                name = coming.pop(arrival)
                try:
                    item = arrival.result()
                except StopAsyncIteration:
                    continue
                coming[asyncio.ensure_future(anext(iterators[name]))] = name
                yield name, item
    finally:
        for arrival in coming:
            arrival.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
