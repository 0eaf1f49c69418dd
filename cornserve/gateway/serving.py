"""What every serving endpoint does around its own: sessions, disconnects, streams, errors, metrics."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from cornserve.gateway.context import Shared
from cornserve.gateway.errors import ApiError, of_request
from cornserve.gateway.session import Session
from cornserve.task.errors import TaskError

log = logging.getLogger(__name__)

Answer = Callable[[Session], Awaitable[bytes]]
Events = Callable[[Session], AsyncGenerator[bytes, None]]


class Serving:
    """One request to one app."""

    def __init__(self, shared: Shared, app: str, request: Request) -> None:
        self.id = uuid.uuid4().hex
        self._shared = shared
        self._app = app
        self._deployed = shared.apps.get(app)
        self._request = request
        self._started = time.perf_counter()

    async def answer(self, answer: Answer) -> Response:
        """One JSON answer. A client that leaves cancels the request."""
        self._shared.metrics.running.labels(self._app).inc()
        status = 499
        try:
            body = await self._unless_disconnected(self._body(answer))
            status = 200
            return Response(body, media_type="application/json", headers={"x-request-id": self.id})
        except Exception as error:
            api_error = self._explain(error)
            status = api_error.status
            raise api_error from error
        finally:
            self._done(status)

    async def stream(self, events: Events) -> Response:
        """Server-sent events. What fails before the first one is a plain error response."""
        self._shared.metrics.running.labels(self._app).inc()
        source = self._events(events)
        try:
            first = await self._unless_disconnected(anext(source))
        except Exception as error:
            await source.aclose()
            api_error = self._explain(error)
            self._done(api_error.status)
            raise api_error from error
        self._shared.metrics.first_seconds.labels(self._app).observe(time.perf_counter() - self._started)
        headers = {"x-request-id": self.id, "cache-control": "no-cache"}
        return StreamingResponse(self._rest(first, source), media_type="text/event-stream", headers=headers)

    async def _body(self, answer: Answer) -> bytes:
        async with self._session(streams=False) as session:
            return await answer(session)

    async def _events(self, events: Events) -> AsyncGenerator[bytes, None]:
        async with self._session(streams=True) as session, aclosing(events(session)) as source:
            async for event in source:
                yield event

    async def _rest(self, first: bytes, source: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
        status = 499
        try:
            async with aclosing(source):
                yield first
                async for event in source:
                    yield event
            status = 200
        except Exception as error:
            api_error = self._explain(error)
            status = api_error.status
            yield b"event: error\ndata: " + api_error.body.model_dump_json().encode() + b"\n\n"
        finally:
            self._done(status)

    async def _unless_disconnected(self, work: Awaitable[bytes]) -> bytes:
        """Once the body is read, all that can still be received is that the client has left."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._request.receive())
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ApiError(499, "the client has left")
            return working.result()
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    def _session(self, *, streams: bool) -> AbstractAsyncContextManager[Session]:
        return Session(self.id, self._deployed, self._shared.replicas, streams=streams)

    def _explain(self, error: Exception) -> ApiError:
        if not isinstance(error, ApiError | TaskError):
            log.error("request %s to app %s failed", self.id, self._app, exc_info=error)
        return of_request(error)

    def _done(self, status: int) -> None:
        metrics = self._shared.metrics
        metrics.running.labels(self._app).dec()
        metrics.requests.labels(self._app, str(status)).inc()
        metrics.seconds.labels(self._app).observe(time.perf_counter() - self._started)
