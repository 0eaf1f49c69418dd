"""A client's connection: uvicorn's, with bounds on time and headers, and with errors in OpenAI's shape.

Only who is late has a timer: a request that arrives in one piece, and whose answer is read as it is written, sets none.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.cork import Cork
from cornserve.gateway.http.presence import DEPARTURE, Departure, client_left, gateway_stops
from cornserve.limits import Limits

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers, which proxies and other servers bound by less."""


class Connection(HttpToolsProtocol):
    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], *, limits: Limits, **kwargs: Any
    ) -> None:
        super().__init__(config, server_state, app_state, **kwargs)
        self._limits = limits
        self._head_bytes = 0
        self._head_end = b""
        """The last bytes of the head that is arriving: with what follows, they may end it."""
        self._in_head = True
        self._is_complete = True
        """What has arrived are whole requests."""
        self._departure = Departure()
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Cork(transport, self.loop))
        if len(self.connections) > self._limits.connections:
            count = len(self.connections) - 1
            self._refuse(429, f"{count} clients are connected ({self._limits.hint('connections')}); try again later")
        else:
            self._expect(self._limits.receive_seconds)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._is_complete = False
        if self._in_head and self._is_too_long(data):
            self._refuse(431, f"the request's headers have more than {MAX_HEAD_BYTES} bytes")
            return
        super().data_received(data)
        if self._is_complete:
            self._expect(None)
        elif self._late is None:
            self._expect(self._limits.receive_seconds)

    def _is_too_long(self, data: bytes) -> bool:
        """Whether the head that arrives is. What follows it in `data` may be as long as it likes."""
        before, begun = self._head_bytes, self._head_end
        self._head_bytes += len(data)
        self._head_end = (begun + data[-3:])[-3:]
        if self._head_bytes <= MAX_HEAD_BYTES:
            return False
        end = (begun + data).find(b"\r\n\r\n")
        return end < 0 or before + end > MAX_HEAD_BYTES

    def on_message_begin(self) -> None:
        self._is_complete = False
        super().on_message_begin()
        self.scope["state"][DEPARTURE] = self._departure

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes, self._head_end = False, 0, b""
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._is_complete = True, True
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()  # else nobody would see that the client leaves

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_progress()

    def _expect_progress(self) -> None:
        """Of a client that has much to read: it may take long, if it reads at all."""
        unread = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self._limits.stall_seconds, self._on_stalled, unread)

    def _on_stalled(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._expect_progress()
        else:
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._departure.happen(client_left())
        self._expect(None)
        self.resume_writing()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Ends the requests that are still served, whose clients are told so."""
        self._departure.happen(gateway_stops())

    def send_400_response(self, msg: str) -> None:
        """Where uvicorn's parser gives up."""
        self._refuse(400, "this is no HTTP/1.1 request")

    def _expect(self, seconds: float | None) -> None:
        """Sets the time in which the rest of a request has to arrive."""
        if self._late is not None:
            self._late.cancel()
        self._late = None if seconds is None else self.loop.call_later(seconds, self._on_late)

    def _on_late(self) -> None:
        self._refuse(408, f"the request did not arrive in time ({self._limits.hint('receive-seconds')})")

    def _refuse(self, status: int, message: str) -> None:
        """In words, where they would be the request's answer; in any case, the connection ends."""
        if self._can_answer:
            error = ApiError(status, message)
            headers = {"content-type": "application/json", "content-length": str(len(error.content)), **error.headers}
            lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"connection: close\r\n\r\n", error.content]))
        self.transport.close()

    @property
    def _can_answer(self) -> bool:
        """Whether the request that is arriving has no answer yet, and all before it have theirs."""
        cycle: Any = self.cycle  # none at first, whatever its type says
        if cycle is None or self.pipeline:
            return cycle is None
        return bool(cycle.response_complete if self._in_head else not cycle.response_started)
