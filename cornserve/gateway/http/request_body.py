"""Receives request bodies and parses their JSON.

`RequestMiddleware` receives each body before the handler runs. Handlers read it with `endpoints/read_request.py`. They
cannot use FastAPI's body parameters, which would receive the body again and wait forever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import Receive

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.admission import MemoryReservation, RequestAdmission
from cornserve.limits import Limits

Content = bytes | bytearray

BODY = "body"
"""The key of the `RequestBody` in the state of an ASGI scope."""

JSON = "application/json"

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

OBJECT_VALUES = 3
"""An object counts as this many values: its validation takes as long as that of dozens of numbers."""

FEW = 100
"""The number of marks that `_count` searches for individually."""


class ClientDisconnected(Exception):
    """The client disconnected before its body was complete."""


class RequestBody(MemoryReservation):
    """A body and the memory that it uses.

    Args:
        headers: the headers of the request, with names in lower case.
    """

    __slots__ = ("_content", "_headers", "is_complete")

    def __init__(self, admission: RequestAdmission, headers: Mapping[bytes, bytes]) -> None:
        super().__init__(admission)
        self._headers = headers
        self._content: Content = b""
        self.is_complete = False

    @property
    def content_type(self) -> str:
        return self._headers.get(b"content-type", b"").decode("latin-1")

    @property
    def content_encoding(self) -> str:
        return self._headers.get(b"content-encoding", b"identity").decode("latin-1")

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


def take_body(request: Request) -> RequestBody:
    """Returns the body of a request. Raises a 415 if it is not JSON."""
    body = take_any_body(request)
    _check_json_type(body.content_type or JSON)
    return body


def take_any_body(request: Request) -> RequestBody:
    """Returns the body of a request of any content type. Raises a 415 if it is compressed."""
    body: RequestBody = request.scope["state"][BODY]
    encoding = body.content_encoding
    if encoding != "identity":
        raise ApiError(415, f"unsupported content encoding {encoding!r}: send the body without compression")
    return body


def parse_json(content: Content) -> Any:
    """Raises a 400 if the content is not valid JSON."""
    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from error


def check_constants(content: Content) -> None:
    """Raises a 400 for NaN and Infinity, which pydantic accepts, although they are not JSON."""
    if b"NaN" in content or b"Infinity" in content:
        parse_json(content)


def check_values(content: Content, limits: Limits) -> None:
    """Raises a 413 for too many values, before they are parsed."""
    if _count_marks(content) <= limits.json_values:
        return
    # Marks inside strings are not values. Each of the removed strings is a key or a value.
    content, strings = _STRING.subn(b"", content, 2 * limits.json_values)
    values = max(_count_marks(content), strings // 2)
    if values > limits.json_values:
        raise ApiError(413, f"the body has {values} values ({limits.hint('json-values')})", code="too_large")


def _count_marks(content: Content) -> int:
    return sum(weight * _count(content, mark) for mark, weight in ((b",", 1), (b"[", 1), (b"{", OBJECT_VALUES)))


def _check_json_type(given: str) -> None:
    """Raises a 415 if bodies of this type are not JSON. Forms with JSON are refused, too: pages of other sites can send
    them without permission."""
    if given == JSON:
        return
    media_type = given.partition(";")[0].strip().lower()
    if media_type not in (JSON, "") and not media_type.endswith("+json"):
        raise ApiError(415, f"unsupported content type {media_type!r}: send JSON (content-type: application/json)")


def _count(body: Content, mark: bytes) -> int:
    """Returns `body.count(mark)`, but ten times faster where marks are rare, as in base64."""
    position = -1
    for found in range(FEW):
        position = body.find(mark, position + 1)
        if position < 0:
            return found
    return body.count(mark)
