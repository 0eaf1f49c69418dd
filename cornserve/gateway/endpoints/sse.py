"""Server-sent events."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Send

from cornserve.gateway.http.admission import Admission
from cornserve.gateway.http.outgoing import send_piece

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


def event(data: bytes, name: str | None = None) -> bytes:
    """One event; `data` is a single line, as JSON is."""
    return b"data: " + data + b"\n\n" if name is None else b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class EventStream:
    """Server-sent events on their way to a client; begun by the first."""

    def __init__(self, send: Send, admission: Admission, headers: Mapping[str, str]) -> None:
        self._send = send
        self._admission = admission
        self._headers = _HEADERS + [(name.encode(), value.encode()) for name, value in headers.items()]
        self.has_begun = False

    async def send(self, events: bytes) -> None:
        if not self.has_begun:
            self.has_begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send_piece(self._send, events, self._admission)

    async def end(self) -> None:
        await send_piece(self._send, b"", self._admission, is_last=True)
