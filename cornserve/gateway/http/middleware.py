"""The outermost ASGI middleware: authentication, admission and the request body.

A rejected request costs little: its body is neither kept nor parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.admission import RequestAdmission
from cornserve.gateway.http.auth import Authenticator
from cornserve.gateway.http.model_paths import calls_model
from cornserve.gateway.http.request_body import BODY, ClientDisconnected, RequestBody
from cornserve.gateway.http.request_id import REQUEST_ID, RequestId
from cornserve.limits import MIB
from cornserve.observe import logs

SMALL_BODY_BYTES = 64 * 1024
"""The unread body of a rejected request is skipped up to this size, so that the connection can be reused."""


class RequestMiddleware:
    """Authenticates each request, applies the limits and receives the body before it calls `app`.

    Args:
        on_rejected: called with the status and the code of each rejection.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        admission: RequestAdmission,
        on_rejected: Callable[[int, str | None], None],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._admission = admission
        self._on_rejected = on_rejected
        self._max_bytes = admission.limits.body_mib * MIB

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id: RequestId = scope["state"][REQUEST_ID]
        logs.bind(request_id=request_id.value)
        headers = dict(scope["headers"])
        body = RequestBody(self._admission, headers)
        try:
            is_counted = self._check_headers(scope["method"], scope["path"], headers)
            await body.receive(receive, self._max_bytes)
            if is_counted:
                self._admission.start_request()
        except ClientDisconnected:
            body.release()
            return
        except ApiError as error:
            body.release()
            self._on_rejected(error.status, error.body.error.code)
            content = error.content_for(scope["path"], scope["headers"], request_id.value)
            await _reject(error, content, send, closes=not (body.is_complete or _has_small_body(headers)))
            return
        except asyncio.CancelledError:
            body.release()
            raise
        try:
            scope["state"][BODY] = body
            await self._app(scope, receive, send)
        finally:
            body.release()
            if is_counted:
                self._admission.finish_request()

    def _check_headers(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:
        """Returns whether the request counts toward the limit of requests in flight.

        Administrative requests and probes do not count, so they work while the gateway is full.
        """
        self._authenticator.check(method, path, headers)
        is_counted = calls_model(path)
        if is_counted:
            self._admission.check_in_flight()
        size = int(headers.get(b"content-length", b"0"))
        if size > self._max_bytes:
            raise self._admission.body_too_large(size)
        return is_counted


async def _reject(error: ApiError, content: bytes, send: Send, *, closes: bool) -> None:
    """Sends the response of an error.

    With `closes`, closes the connection, because the client still sends a large body.
    """
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    if closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _has_small_body(headers: Mapping[bytes, bytes]) -> bool:
    return b"transfer-encoding" not in headers and int(headers.get(b"content-length", b"0")) <= SMALL_BODY_BYTES
