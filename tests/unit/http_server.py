"""An HTTP server with programmed responses, which records its requests."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class StubResponse:
    body: bytes
    status: int = 200
    type: str = "application/json"
    cut: bool = False
    """Whether the connection breaks after the body, before the response is complete."""


def json_response(document: Any, status: int = 200) -> StubResponse:
    return StubResponse(json.dumps(document).encode(), status)


def audio_response(content: bytes, *, cut: bool = False) -> StubResponse:
    return StubResponse(content, type="audio/mpeg", cut=cut)


def sse_response(*events: tuple[str, Any], cut: bool = False) -> StubResponse:
    lines = (f"event: {event}\ndata: {json.dumps(data)}\n\n" for event, data in events)
    return StubResponse("".join(lines).encode(), type="text/event-stream", cut=cut)


@dataclass
class StubServer:
    url: str = ""
    responses: dict[str, list[StubResponse]] = field(default_factory=dict)
    """The responses by method and path. Each is sent once, the last one repeatedly."""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def on(self, call: str, *responses: StubResponse) -> None:
        self.responses[call] = list(responses)

    def respond(self, call: str, body: bytes, headers: dict[str, str]) -> StubResponse:
        is_form = headers.get("Content-Type", "").startswith("multipart/form-data")
        self.requests.append((call, body if is_form else json.loads(body) if body else None))
        self.headers.append(headers)
        remaining = self.responses.get(call)
        if not remaining:
            return json_response({"error": {"message": f"no response for {call}", "type": "x"}}, 404)
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]


class _HttpServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # clients may disconnect
            super().handle_error(request, client_address)


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[StubServer]:
    """Yields a server on 127.0.0.1, which uses TLS if a context is given."""
    stub = StubServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            response = stub.respond(f"{self.command} {self.path}", body, dict(self.headers))
            self.send_response(response.status)
            self.send_header("Content-Type", response.type)
            self.send_header("Content-Length", str(len(response.body) + response.cut))
            self.end_headers()
            self.wfile.write(response.body)
            self.close_connection = response.cut

        do_GET = do_PUT = do_POST = do_DELETE = _respond  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with _HttpServer(("127.0.0.1", 0), Handler) as server:
        stub.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
