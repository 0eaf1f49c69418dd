"""The bodies of requests: how they arrive, and how JSON in them is read.

The gate has received a body before its handler is called. A handler that would receive it once more, as FastAPI does
for parameters that are bodies, would wait for ever: it asks for `json_of` or `body_of` the request.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request
from pydantic_core import from_json
from starlette.types import Receive

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.admission import Admission, Held
from cornserve.gateway.http.headers import header
from cornserve.limits import Limits

Content = bytes | bytearray

INCOMING = "incoming"
"""Where the state of a request has its body."""

JSON = "application/json"

CURL_SAYS = "application/x-www-form-urlencoded"
"""Of whatever it is told to send."""

CERTAINLY_FEW = 64 * 1024
"""JSON of this size is read before counting its values would be worth it."""

SOME = 100
"""Values that are looked for one by one."""


class ClientLeft(Exception):
    """Before its body was complete."""


class Incoming(Held):
    """A body as it arrives: its bytes count until it is released."""

    __slots__ = ("_content", "is_complete")

    def __init__(self, admission: Admission) -> None:
        super().__init__(admission)
        self._content: Content = b""
        self.is_complete = False

    async def read(self, receive: Receive, max_bytes: int) -> None:
        content: Content = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            piece, more = message["body"], message["more_body"]
            self.is_complete = not more
            self.take(len(piece))
            if self.size > max_bytes:
                raise self._admission.too_large(self.size)
            if not content:
                content = piece
            else:  # grows with each, since joining them all would take long at once
                content = content if isinstance(content, bytearray) else bytearray(content)
                content += piece
        self._content = content

    def taken(self) -> Content:
        """The whole body, once: a request, which lives until it is answered, does not keep it. It may hold images."""
        content, self._content = self._content, b""
        return content

    def release(self) -> None:
        self._content = b""
        super().release()


def json_of(request: Request) -> Any:
    """What the body says. Raises the 4xx that says what is wrong with it."""
    return _parse(_read(request))


def body_of(request: Request) -> Content:
    """The body, for pydantic to read: JSON of a size that takes no long time, and without NaN and Infinity, which are
    no JSON, but which pydantic would take."""
    body = _read(request)
    if b"NaN" in body or b"Infinity" in body:
        _parse(body)
    return body


def _read(request: Request) -> Content:
    _check_type(header(request.scope, b"content-type") or JSON)
    incoming: Incoming = request.scope["state"][INCOMING]
    body = incoming.taken()
    if len(body) > CERTAINLY_FEW:
        _check_values(body, request.app.state.shared.admission.limits)
    return body


def _parse(body: Content) -> Any:
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {error}", code="invalid_json") from error


def _check_type(given: str) -> None:
    if given == JSON:
        return
    media_type = given.partition(";")[0].strip().lower()
    if media_type not in (JSON, CURL_SAYS, "") and not media_type.endswith("+json"):
        raise ApiError(415, f"the body has to be JSON (content-type: application/json), not {media_type!r}")


def _check_values(body: Content, limits: Limits) -> None:
    """Commas in texts count, too: a text that has so many is long indeed."""
    values = sum(_count(body, mark) for mark in (b",", b"[", b"{"))
    if values > limits.json_values:
        raise ApiError(413, f"the body has {values} values ({limits.hint('json-values')})", code="too_large")


def _count(body: Content, mark: bytes) -> int:
    """As `body.count`, but ten times as fast where there are few, as in the base64 of images."""
    position = -1
    for found in range(SOME):
        position = body.find(mark, position + 1)
        if position < 0:
            return found
    return body.count(mark)
