"""What every serving endpoint does around its own: sessions, disconnects, streams, errors, metrics."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cornserve.gateway import sse
from cornserve.gateway.context import Shared
from cornserve.gateway.errors import ApiError, of_request
from cornserve.gateway.session import Session, StreamWantedError
from cornserve.task.errors import TaskError

log = logging.getLogger(__name__)

Answer = Callable[[Session], Awaitable[bytes]]
Events = Callable[[Session], AsyncGenerator[bytes, None]]


class Serving:
    """One request to one app."""

    def __init__(self, shared: Shared, app: str, request: Request) -> None:
        self.id = uuid.uuid4().hex
        self.deployed = shared.apps.get(app)
        self._shared = shared
        self._app = app
        self._request = request
        self._started = time.perf_counter()
        self._is_done = False

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
        except BaseException as error:
            await source.aclose()
            if not isinstance(error, Exception):
                self._done(499)
                raise
            api_error = self._explain(error)
            self._done(api_error.status)
            raise api_error from error
        self._shared.metrics.first_seconds.labels(self._app).observe(time.perf_counter() - self._started)
        headers = {"x-request-id": self.id, "cache-control": "no-cache"}
        return _Events(self._rest(first, source), lambda: self._abandon(source), headers)

    async def _abandon(self, source: AsyncGenerator[bytes, None]) -> None:
        """Ends what a response that was not sent to its end has left."""
        await source.aclose()
        self._done(499)

    async def _body(self, answer: Answer) -> bytes:
        try:
            async with self._session(streams=False) as session:
                return await answer(session)
        except StreamWantedError:
            # Known only now, after a value of the same output was read: rare enough to run the request twice.
            async with self._session(streams=True, attempt=1) as session:
                return await answer(session)

    async def _events(self, events: Events) -> AsyncGenerator[bytes, None]:
        async with self._session(streams=True) as session, aclosing(events(session)) as source:
            async for event in source:
                yield event

    async def _rest(self, first: bytes, source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
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
            yield sse.event(api_error.body.model_dump_json().encode(), "error")
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

    def _session(self, *, streams: bool, attempt: int = 0) -> Session:
        return Session(self.id, self.deployed, self._shared.replicas, streams=streams, attempt=attempt)

    def _explain(self, error: Exception) -> ApiError:
        if not isinstance(error, ApiError | TaskError):
            log.error("request %s to app %s failed", self.id, self._app, exc_info=error)
        return of_request(error)

    def _done(self, status: int) -> None:
        if self._is_done:
            return
        self._is_done = True
        metrics = self._shared.metrics
        metrics.running.labels(self._app).dec()
        metrics.requests.labels(self._app, str(status)).inc()
        metrics.seconds.labels(self._app).observe(time.perf_counter() - self._started)


class _Events(StreamingResponse):
    """Closes its events however sending them ends; a client that is gone at once never makes them start."""

    def __init__(
        self, events: AsyncGenerator[bytes, None], abandon: Callable[[], Awaitable[None]], headers: dict[str, str]
    ) -> None:
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._events = events
        self._abandon = abandon

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()
            await self._abandon()
