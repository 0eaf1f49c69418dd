"""What every serving endpoint does around its own: sessions, disconnects, streams, errors, metrics."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from cornserve.gateway.context import Shared
from cornserve.gateway.endpoints import sse
from cornserve.gateway.errors import ApiError, of_request
from cornserve.gateway.http.admission import Held
from cornserve.gateway.http.headers import header
from cornserve.gateway.http.outgoing import send_piece
from cornserve.gateway.http.presence import WhilePresent
from cornserve.gateway.media.media import Place, places_in
from cornserve.gateway.observe import access_log
from cornserve.gateway.request.session import Session, StreamWantedError
from cornserve.limits import Limits
from cornserve.observe import logs, tracing
from cornserve.observe.redaction import redacted_traceback
from cornserve.task.errors import TaskError
from cornserve.tracebacks import clear_traceback

log = logging.getLogger(__name__)

TIMEOUT_HEADER = "x-request-timeout"

Answer = Callable[[Session], Awaitable[bytes]]
Events = Callable[[Session], AsyncGenerator[bytes, None]]


class Serving:
    """One request to one app."""

    def __init__(self, shared: Shared, app: str, request: Request) -> None:
        self.id = f"{random.getrandbits(128):032x}"  # names it, and opens nothing
        self.deployed = shared.apps.get(app)
        self._shared = shared
        self._app = app
        self._request = request
        self._meter = shared.metrics.meter(app)
        self._arrived_us = time.time_ns() // 1000
        self._deadline = asyncio.get_running_loop().time() + _seconds(request, shared.admission.limits)
        self._fetched = Held(shared.admission)
        self._images: list[Place] = []
        self._status = 499
        logs.bind(request_id=self.id, app=app)

    def take_images_of(self, asked: object) -> None:
        """What the app is asked has them once the answer is begun."""
        self._images = places_in(asked)

    async def answer(self, answer: Answer) -> Response:
        """One JSON answer. A client that leaves cancels the request."""
        self._begin()
        try:
            with WhilePresent(self._request.scope):
                if self._images:
                    await self._resolve_images()
                body = await self._body(answer)
            self._status = 200
            return _Sent(partial(self._send_whole, body))
        except Exception as error:
            raise self._explain(error) from None
        finally:
            self._done()

    async def _send_whole(self, body: bytes, send: Send) -> None:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", self.id.encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send_piece(send, body, self._shared.admission, is_last=True)

    async def stream(self, events: Events) -> Response:
        """Server-sent events. What fails before the first one is a plain error response."""
        return _Sent(partial(self._send, events))

    async def _send(self, events: Events, send: Send) -> None:
        answer = sse.EventStream(send, self._shared.admission, {"x-request-id": self.id})
        self._begin()
        try:
            with WhilePresent(self._request.scope):
                if self._images:
                    await self._resolve_images()
                with self._session(streams=True) as session:
                    async with aclosing(events(session)) as source:
                        async for event in source:
                            await answer.send(event)
            self._status = 200
        except Exception as error:
            if not answer.has_begun:
                raise self._explain(error) from None
            await answer.send(sse.event(self._explain(error).content, "error"))
        finally:
            self._done()
        await answer.end()

    async def _resolve_images(self) -> None:
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._shared.media.resolve(self._images, self._fetched.take)
                self._meter.take_images(len(self._images))
        except TimeoutError:
            message = "the images could not be fetched by the request's deadline"
            raise ApiError(504, message, code="deadline_exceeded") from None

    async def _body(self, answer: Answer) -> bytes:
        with self._session(streams=False) as session:
            try:
                return await answer(session)
            except StreamWantedError:
                # Known only now, after a value of the same output was read: rare enough to run the request twice.
                attempt = session.next_attempt
        with self._session(streams=True, attempt=attempt) as session:
            return await answer(session)

    def _session(self, *, streams: bool, attempt: int = 0) -> Session:
        return Session(
            self.id,
            self.deployed,
            self._shared.replicas,
            self._meter,
            streams=streams,
            arrived_us=self._arrived_us,
            deadline=self._deadline,
            attempt=attempt,
        )

    def _explain(self, error: Exception) -> ApiError:
        """What the client is told. The error forgets where it came from: the request's memory must not hang on it."""
        if not isinstance(error, ApiError | TaskError):
            log.error("the request failed:\n%s", redacted_traceback(error))
        explained = of_request(error)
        explained.headers["x-request-id"] = self.id
        self._status = explained.status
        clear_traceback(error)
        return explained

    def _begin(self) -> None:
        """Raises a 429 if the app has enough to do."""
        self._shared.admission.enter(self._app)
        self._meter.begin()
        if tracing.tracer is not None:
            from cornserve.gateway.observe.trace import Trace

            self._meter.trace = Trace(self._request, self.id, self._app)

    def _done(self) -> None:
        self._shared.admission.leave(self._app)
        self._fetched.release()
        self._meter.end(self._status)
        if self._meter.trace is not None:
            self._meter.trace.end(self._meter, self._status)
        access_log.write(self._request, self._meter, self._status)


def _seconds(request: Request, limits: Limits) -> float:
    """How long the request may take: `X-Request-Timeout`, in seconds."""
    given, most = header(request.scope, TIMEOUT_HEADER.encode()), limits.request_seconds
    if given is None:
        return most
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0
    is_number = given.isascii() and "_" not in given  # Python reads more as one
    if not (is_number and 0 < seconds <= most):  # nor NaN
        wanted = f"a number of seconds above 0 and at most {most} ({limits.hint('request-seconds')})"
        raise ApiError(400, f"{TIMEOUT_HEADER} must be {wanted}, not {given!r}", param=TIMEOUT_HEADER)
    return seconds


class _Sent(Response):
    """A response that sends itself."""

    def __init__(self, send: Callable[[Send], Coroutine[Any, Any, None]]) -> None:
        self._send = send
        self.background = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        return self._send(send)
