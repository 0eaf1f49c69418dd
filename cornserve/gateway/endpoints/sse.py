"""Server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json
from starlette.types import Send

from cornserve.gateway.http.admission import RequestAdmission
from cornserve.gateway.http.response_body import send_chunk

CONTENT_TYPE = "text/event-stream; charset=utf-8"


def encode_event(data: bytes, name: str | None = None) -> bytes:
    """Returns one event. `data` is a single line, such as JSON."""
    return b"data: " + data + b"\n\n" if name is None else b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def encode_typed_event(type: str, fields: Mapping[str, Any]) -> bytes:
    """Returns an event whose JSON repeats its name as `type`."""
    return encode_event(to_json({"type": type, **fields}), type)


DONE = encode_event(b"[DONE]")
"""The last event of OpenAI's streams."""


class ResponseStream:
    """A response that is sent in parts, such as events. The first part starts the response."""

    def __init__(self, send: Send, admission: RequestAdmission, headers: Mapping[str, str]) -> None:
        self._send = send
        self._admission = admission
        with_defaults = {"cache-control": "no-cache", **headers}
        self._headers = [(name.encode(), value.encode()) for name, value in with_defaults.items()]
        self.is_started = False

    async def send(self, part: bytes) -> None:
        if not self.is_started:
            self.is_started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send_chunk(self._send, part, self._admission)

    async def finish(self) -> None:
        await send_chunk(self._send, b"", self._admission, is_last=True)
