"""A client's HTTP connection: uvicorn's, with limits on time and size, and errors in OpenAI's format.

Every request that has been read gets a response, in the order of the requests, before the connection is closed.
Timers run only for idle connections and slow clients. A request that arrives in one chunk sets no timer if the client
reads the response immediately.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote
from weakref import ref

from httptools import HttpParserError, HttpParserInvalidURLError, HttpParserUpgrade, HttpRequestParser, parse_url
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.disconnect import CANCELLATION, RequestCancellation
from cornserve.gateway.http.head_limits import CHUNK_FRAMING_BYTES, MAX_FRAMING_BYTES, MAX_HEAD_BYTES, RequestSize
from cornserve.gateway.http.incomplete_response import CYCLE
from cornserve.gateway.http.lingering import has_unread_data
from cornserve.gateway.http.request_head import check_head, request_target, without_upgrade
from cornserve.gateway.http.request_id import REQUEST_ID, RequestId
from cornserve.gateway.http.write_coalescing import CoalescingTransport
from cornserve.limits import Limits

STOPPING = "stopping"
"""The key of a flag in the state of an ASGI scope: the gateway is stopping."""

STOP_IDLE_SECONDS = 0.5
"""The time that an idle connection stays open after a shutdown has begun: a request may be on its way."""

MAX_REJECTED = 1024
"""Connections above the limit that get an error. Further ones are closed immediately."""


class HttpConnection(HttpToolsProtocol):
    """Limits the time and the size of incoming requests, and drops clients that do not read."""

    transport: CoalescingTransport

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], *, limits: Limits, **kwargs: Any
    ) -> None:
        super().__init__(config, server_state, app_state, **kwargs)
        self._limits = limits
        self._keep_alive = (b"keep-alive", b"timeout=%d" % limits.idle_seconds)
        """The header with which clients know when the connection is closed if they do not use it."""
        self._size = RequestSize()
        self.url = b""
        self._is_complete = True
        """Whether no request is partly received."""
        self._error: ApiError | None = None
        """The response to the incoming request, which is not valid. It is the last response of the connection."""
        self._cancellation = RequestCancellation()
        self._receive_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(CoalescingTransport(transport, self.loop))
        count, limit = len(self.connections) - 1, self._limits.connections
        if count < limit:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif count < limit + MAX_REJECTED:
            message = f"{count} clients are connected ({self._limits.hint('connections')}); try again later"
            self._reject(ApiError(429, message))
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._error is not None or self.transport.is_closing():
            return
        self._is_complete = False
        if self._size.add_received(data):
            self.url = self.url or request_target(data)
            self._reject(ApiError(431, f"the request's headers have more than {MAX_HEAD_BYTES} bytes"))
            return
        self._parse(data)
        if self._size.is_framing_too_long:
            message = f"the request's chunk extensions and trailers have more than {MAX_FRAMING_BYTES} bytes"
            self._reject(ApiError(431, message))
        if self._is_complete:
            self._set_receive_timer(None)
        elif self._receive_timer is None and self._error is None:
            self._set_receive_timer(self._limits.receive_seconds)
        if STOPPING in self.app_state:
            self._close_after_responses()

    def _parse(self, data: bytes) -> None:
        """Parses received data. A request to upgrade to another protocol is processed as if it did not ask for that.

        The parser stops after the head of such a request, and continues after the head without the `Upgrade` header.
        """
        self._unset_keepalive_if_required()
        rest = memoryview(data)
        try:
            while True:
                try:
                    self.parser.feed_data(rest)
                    return
                except HttpParserUpgrade as upgrade:
                    rest = rest[upgrade.args[0] :]
                head = without_upgrade(self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
                self.parser = HttpRequestParser(self)  # The other one may be in a state in which it ignores all data.
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(head)
        except HttpParserError:
            self._reject(self._error or ApiError(400, "not a valid HTTP/1.1 request"))

    def on_message_begin(self) -> None:
        self._is_complete = False
        super().on_message_begin()
        self.scope["state"][CANCELLATION] = self._cancellation

    def on_headers_complete(self) -> None:
        try:
            check_head(self.parser.get_method(), self.parser.get_http_version(), self.headers)
        except ApiError as error:
            self._error = error
            raise
        if self.parser.should_upgrade():
            return
        request_id = self.scope["state"][REQUEST_ID] = RequestId.of(self.headers)
        super().on_headers_complete()
        self.scope["state"][CYCLE] = ref(self.cycle)
        self.cycle.default_headers = [*self.cycle.default_headers, *request_id.headers]
        if self.cycle.keep_alive:
            self.cycle.default_headers.append(self._keep_alive)
        self._size.begin_body()
        self.headers = []  # Trailers, which are appended to it, are dropped.
        self.url = b""

    def on_chunk_header(self) -> None:
        self._size.add_content(CHUNK_FRAMING_BYTES)

    def on_body(self, body: bytes) -> None:
        self._size.add_content(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._size.begin_head()
        self._is_complete = True
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()  # Detects a disconnect of the client.

    def on_response_complete(self) -> None:
        if self._error is not None and not self.pipeline:
            self._send_error(self._error)
        else:
            super().on_response_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Cancels the requests. Returns whether to send their responses before closing the connection.

        The client has disconnected, or it has ended only its own side and still reads.
        """
        cycle: Any = self.cycle  # The attribute starts as None, despite its type.
        if cycle is None or cycle.response_started:
            self.transport.flush()
            return False
        self._cancellation.cancel(ApiError(499, "the client disconnected"))
        if self._is_complete:
            cycle.keep_alive = False
        elif self._error is None:
            self._reject(ApiError(400, "the client ended the connection before the end of the request"))
        return not self.transport.is_closing()

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
        self._unset_keepalive_if_required()
        self.resume_writing()
        super().connection_lost(exc)
        self.transport.on_lost()

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection if it is idle. Otherwise, it is closed or gets a new timer after the next response."""
        cycle: Any = self.cycle
        is_idle = self._is_complete and (cycle is None or cycle.response_complete)
        if is_idle and not self.transport.is_closing() and not has_unread_data(self.transport):
            self.transport.close()

    def shutdown(self) -> None:
        """Called by uvicorn when a shutdown begins. The connection is closed after the responses."""
        self._close_after_responses()
        self.loop.call_later(STOP_IDLE_SECONDS, self.timeout_keep_alive_handler)

    def _close_after_responses(self) -> None:
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def cancel_requests(self) -> None:
        """Cancels the requests in flight, including a partly received one. Their clients get a 503."""
        message = "the gateway is stopping, and the request takes longer than it can wait: send the request again"
        error = ApiError(503, message, code="stopping")
        self._cancellation.cancel(error)
        if not self._is_complete:
            self._reject(error)

    def _set_receive_timer(self, seconds: float | None) -> None:
        """Sets the time in which the rest of a request must arrive, or clears it."""
        if self._receive_timer is not None:
            self._receive_timer.cancel()
        self._receive_timer = None if seconds is None else self.loop.call_later(seconds, self._on_receive_timeout)

    def _on_receive_timeout(self) -> None:
        if self.flow.read_paused:  # The rest is read after the responses to earlier requests.
            self._set_receive_timer(self._limits.receive_seconds)
        else:
            self._reject(ApiError(408, f"the request did not arrive in time ({self._limits.hint('receive-seconds')})"))

    def _reject(self, error: ApiError) -> None:
        """Responds to the incoming request, after the responses to all earlier ones, and closes the connection."""
        self._set_receive_timer(None)
        self._error = error
        cycle: Any = self.cycle
        if self._size.in_head:
            if cycle is None or cycle.response_complete:
                self._send_error(error)
        elif self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
        elif cycle.response_started:
            self.transport.close()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._send_error(error)

    def _incoming_path(self) -> str:
        """Returns the path of the request whose head is being received. Empty if it is not known."""
        try:
            path: bytes | None = parse_url(self.url).path
            return unquote((path or b"").decode("ascii"))
        except (HttpParserInvalidURLError, UnicodeDecodeError):
            return ""

    def _send_error(self, error: ApiError) -> None:
        if self.transport.is_closing():
            return
        if self._size.in_head:
            path, request_id = self._incoming_path(), RequestId.of(self.headers or ())
        else:
            path, request_id = self.scope["path"], self.scope["state"][REQUEST_ID]
        given = self.headers if self._size.in_head else self.scope["headers"]
        content = error.content_for(path, given or (), request_id.value)
        headers = {"content-type": "application/json", "content-length": str(len(content)), **error.headers}
        lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
        lines += [b"%b: %b\r\n" % header for header in request_id.headers]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"connection: close\r\n\r\n", content]))
        self.transport.close()
