"""Ends responses when the session of their browser ends, such as the streams of an open page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.incomplete_response import close_incomplete
from cornserve.gateway.http.request_id import REQUEST_ID, RequestId

CHECK_SECONDS: Final = 1.0
"""The interval at which the session of an open response is checked."""


async def call_during_session(
    api: ASGIApp, scope: Scope, receive: Receive, send: Send, is_open: Callable[[], bool]
) -> None:
    """Calls the API, and cancels the call soon after the session has ended.

    Server-sent events end with an `error` event, and other responses that have started with their connection.

    Args:
        is_open: returns whether the session is still open.
    Raises:
        ApiError: the session has ended before the response has started (401).
    """
    response, limit = _SentResponse(send), asyncio.timeout(None)
    try:
        async with limit:
            checks = _SessionChecks(is_open, limit)
            try:
                await api(scope, receive, response.send)
            finally:
                checks.stop()
    except TimeoutError:
        if not limit.expired():
            raise
        error = ApiError(401, "the session has ended: sign in at the console", code="not_signed_in")
        if not response.is_started:
            raise error from None
        if response.is_complete:
            return
        if response.has_events:
            request_id: RequestId = scope["state"][REQUEST_ID]
            content = error.content_for(scope["path"], scope["headers"], request_id.value)
            await response.end(b"event: error\ndata: " + content + b"\n\n")
        else:
            close_incomplete(scope)


class _SessionChecks:
    """Expires a time limit soon after a session has ended."""

    def __init__(self, is_open: Callable[[], bool], limit: asyncio.Timeout) -> None:
        self._is_open = is_open
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        if self._is_open():
            self._schedule()
        else:
            self._limit.reschedule(self._loop.time())

    def stop(self) -> None:
        self._timer.cancel()


class _SentResponse:
    """A response, as far as it was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_started = False
        self.is_complete = False
        self.has_events = False

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.start":
            self.is_started = True
            content_type = dict(message["headers"]).get(b"content-type", b"")
            self.has_events = content_type.startswith(b"text/event-stream")
        else:
            self.is_complete = not message.get("more_body", False)

    async def end(self, last: bytes) -> None:
        await self._send({"type": "http.response.body", "body": last, "more_body": False})
