"""A client's HTTP connection: uvicorn's, with limits on time and headers, and errors in OpenAI's format.

Timers run only for slow clients. A request that arrives in one chunk sets no timer if the client reads the response
immediately.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.disconnect import CANCELLATION, RequestCancellation
from cornserve.gateway.http.write_coalescing import CoalescingTransport
from cornserve.limits import Limits

MAX_HEAD_BYTES = 64 * 1024
"""The maximum size of a request line and its headers. Proxies and other servers allow less."""


class HttpConnection(HttpToolsProtocol):
    """Limits the time and the size of incoming requests, and drops clients that do not read."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], *, limits: Limits, **kwargs: Any
    ) -> None:
        super().__init__(config, server_state, app_state, **kwargs)
        self._limits = limits
        self._head_bytes = 0
        self._head_end = b""
        """The last 3 bytes of an incomplete head: the blank line that ends it may be split."""
        self._in_head = True
        self._is_complete = True
        """Whether no request is partly received."""
        self._cancellation = RequestCancellation()
        self._receive_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(CoalescingTransport(transport, self.loop))
        if len(self.connections) > self._limits.connections:
            count = len(self.connections) - 1
            self._reject(429, f"{count} clients are connected ({self._limits.hint('connections')}); try again later")
        else:
            self._set_receive_timer(self._limits.receive_seconds)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._is_complete = False
        if self._in_head and self._is_head_too_long(data):
            self._reject(431, f"the request's headers have more than {MAX_HEAD_BYTES} bytes")
            return
        super().data_received(data)
        if self._is_complete:
            self._set_receive_timer(None)
        elif self._receive_timer is None:
            self._set_receive_timer(self._limits.receive_seconds)

    def _is_head_too_long(self, data: bytes) -> bool:
        """Returns whether the incomplete head is too long. `data` may contain a body after it, which does not count."""
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
        self.scope["state"][CANCELLATION] = self._cancellation

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes, self._head_end = False, 0, b""
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._is_complete = True, True
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()  # Detects a disconnect of the client.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall_timer()

    def _start_stall_timer(self) -> None:
        """Closes the connection unless the client reads something in time. A slow client may take long."""
        unread = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self._limits.stall_seconds, self._on_stalled, unread)

    def _on_stalled(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._start_stall_timer()
        else:
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancellation.cancel(ApiError(499, "the client disconnected"))
        self._set_receive_timer(None)
        self.resume_writing()
        super().connection_lost(exc)

    def cancel_requests(self) -> None:
        """Cancels the requests in flight. Their clients get a 503."""
        message = "the gateway is stopping, and the request takes longer than it can wait: send the request again"
        self._cancellation.cancel(ApiError(503, message, code="stopping"))

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for a request that it cannot parse."""
        self._reject(400, "not a valid HTTP/1.1 request")

    def _set_receive_timer(self, seconds: float | None) -> None:
        """Sets the time in which the rest of a request must arrive, or clears it."""
        if self._receive_timer is not None:
            self._receive_timer.cancel()
        self._receive_timer = None if seconds is None else self.loop.call_later(seconds, self._on_receive_timeout)

    def _on_receive_timeout(self) -> None:
        self._reject(408, f"the request did not arrive in time ({self._limits.hint('receive-seconds')})")

    def _reject(self, status: int, message: str) -> None:
        """Closes the connection, after an error response if the client expects a response."""
        if self._can_respond:
            error = ApiError(status, message)
            headers = {"content-type": "application/json", "content-length": str(len(error.content)), **error.headers}
            lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"connection: close\r\n\r\n", error.content]))
        self.transport.close()

    @property
    def _can_respond(self) -> bool:
        """Whether the incoming request has no response yet, and all earlier requests have responses."""
        cycle: Any = self.cycle  # The attribute starts as None, despite its type.
        if cycle is None or self.pipeline:
            return cycle is None
        return bool(cycle.response_complete if self._in_head else not cycle.response_started)
