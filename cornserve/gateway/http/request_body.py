"""Receives request bodies and parses their JSON.

`RequestMiddleware` receives each body before the handler runs. Handlers call `read_json` or `read_validated`. They
cannot use FastAPI's body parameters, which would receive the body again and wait forever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import Receive

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.admission import MemoryReservation, RequestAdmission
from cornserve.limits import Limits

Content = bytes | bytearray
Value = TypeVar("Value")

BODY = "body"
"""The key of the `RequestBody` in the state of an ASGI scope."""

JSON = "application/json"

CURL_DEFAULT = "application/x-www-form-urlencoded"
"""The content type that curl sends by default."""

UNCOUNTED_BYTES = 64 * 1024
"""JSON up to this size is parsed without counting its values."""

FEW = 100
"""The number of marks that `_count` searches for individually."""


class ClientDisconnected(Exception):
    """The client disconnected before its body was complete."""


class RequestBody(MemoryReservation):
    """A body and the memory that it uses."""

    __slots__ = ("_content", "is_complete")

    def __init__(self, admission: RequestAdmission) -> None:
        super().__init__(admission)
        self._content: Content = b""
        self.is_complete = False

    async def receive(self, receive: Receive, max_bytes: int) -> None:
        content: Content = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunk, more = message["body"], message["more_body"]
            self.is_complete = not more
            self.reserve(len(chunk))
            if self.size > max_bytes:
                raise self.admission.body_too_large(self.size)
            if not content:
                content = chunk
            else:  # grows with each chunk: joining all of them at the end would block the event loop
                content = content if isinstance(content, bytearray) else bytearray(content)
                content += chunk
        self._content = content

    def detach(self) -> Content:
        """Returns the content and drops it, so that a request with images does not hold the body until its response."""
        content, self._content = self._content, b""
        return content

    def release(self) -> None:
        self._content = b""
        super().release()


def read_json(request: Request) -> Any:
    """Returns the parsed body. Raises an `ApiError` (400, 413, 415) if it is not acceptable JSON."""
    return _parse(_read(request))


def read_checked(request: Request) -> Content:
    """Returns a body that pydantic can parse. Raises an `ApiError` (400, 413, 415) if it is not acceptable."""
    body = _read(request)
    if b"NaN" in body or b"Infinity" in body:  # pydantic accepts these constants, although they are not JSON.
        _parse(body)
    return body


def read_validated(request: Request, validate_json: Callable[[Content], Value]) -> Value:
    """Returns the body as parsed by pydantic. Raises an `ApiError` (400, 413, 415) if it is not valid."""
    try:
        return validate_json(read_checked(request))
    except ValidationError as error:
        raise ApiError.from_validation_error(error) from error


def _read(request: Request) -> Content:
    _check_type(request.headers.get("content-type") or JSON)
    body: RequestBody = request.scope["state"][BODY]
    content = body.detach()
    if len(content) > UNCOUNTED_BYTES:
        _check_values(content, body.admission.limits)
    return content


def _parse(body: Content) -> Any:
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from error


def _check_type(given: str) -> None:
    if given == JSON:
        return
    media_type = given.partition(";")[0].strip().lower()
    if media_type not in (JSON, CURL_DEFAULT, "") and not media_type.endswith("+json"):
        raise ApiError(415, f"unsupported content type {media_type!r}: send JSON (content-type: application/json)")


def _check_values(body: Content, limits: Limits) -> None:
    """Raises a 413 for too many values. Commas in texts count as values: only a very long text has too many."""
    values = sum(_count(body, mark) for mark in (b",", b"[", b"{"))
    if values > limits.json_values:
        raise ApiError(413, f"the body has {values} values ({limits.hint('json-values')})", code="too_large")


def _count(body: Content, mark: bytes) -> int:
    """Returns `body.count(mark)`, but ten times faster where marks are rare, as in base64."""
    position = -1
    for found in range(FEW):
        position = body.find(mark, position + 1)
        if position < 0:
            return found
    return body.count(mark)
