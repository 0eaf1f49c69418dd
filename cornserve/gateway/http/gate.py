"""What every request passes before its handler: who sends it, whether there is room, whether its body fits.

A request that is refused costs next to nothing: its body is neither kept nor parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.admission import Admission
from cornserve.gateway.http.body import INCOMING, ClientLeft, Incoming
from cornserve.gateway.http.guard import Guard
from cornserve.limits import MIB

LINGER_SECONDS = 2.0
"""How long a client that was refused may go on to send: a connection that is cut at once loses the refusal, too."""

SMALL_BODY = 64 * 1024
"""A body of this size is skipped, and the connection lives on."""


class Gate:
    """Lets requests through to the application one by one, and answers those itself that it refuses.

    Args:
        count: is told of the status and code of each refusal.
    """

    def __init__(
        self, app: ASGIApp, guard: Guard, admission: Admission, count: Callable[[int, str | None], None]
    ) -> None:
        self._app = app
        self._count = count
        self._guard = guard
        self._admission = admission
        self._max_bytes = admission.limits.body_mib * MIB

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        body = Incoming(self._admission)
        try:
            serves = self._check(scope["path"], headers)
            await body.read(receive, self._max_bytes)
            if serves:
                self._admission.begin()
        except ClientLeft:
            body.release()
            return
        except ApiError as error:
            body.release()
            self._count(error.status, error.body.error.code)
            rest = None if body.is_complete or _is_small(headers) else receive
            await _refuse(error, rest, send)
            return
        try:
            scope["state"][INCOMING] = body
            await self._app(scope, receive, send)
        finally:
            body.release()
            if serves:
                self._admission.end()

    def _check(self, path: str, headers: Mapping[bytes, bytes]) -> bool:
        """Whether it is a request to an app; the others, such as administration, go on when the gateway is full."""
        self._guard.check(path, headers)
        serves = path.startswith("/v1/")
        if serves:
            self._admission.check()
        size = int(headers.get(b"content-length", b"0"))
        if size > self._max_bytes:
            raise self._admission.too_large(size)
        return serves


async def _refuse(error: ApiError, rest: Receive | None, send: Send) -> None:
    """`rest` is what the client may still be sending."""
    content = error.content
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    if rest is not None:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": rest is not None})
    if rest is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(_skip(rest), LINGER_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _skip(receive: Receive) -> None:
    while (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass


def _is_small(headers: Mapping[bytes, bytes]) -> bool:
    return b"transfer-encoding" not in headers and int(headers.get(b"content-length", b"0")) <= SMALL_BODY
