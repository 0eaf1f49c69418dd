"""A real HTTP server that answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    status: int = 200
    type: str = "application/json"
    cut: bool = False
    """The connection breaks after the body, before the answer is complete."""


def json_answer(document: Any, status: int = 200) -> Answer:
    return Answer(json.dumps(document).encode(), status)


def sse_answer(*events: tuple[str, Any], cut: bool = False) -> Answer:
    lines = (f"event: {event}\ndata: {json.dumps(data)}\n\n" for event, data in events)
    return Answer("".join(lines).encode(), type="text/event-stream", cut=cut)


@dataclass
class Server:
    url: str = ""
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    """By method and path; each is given once, the last one again and again."""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def on(self, call: str, *answers: Answer) -> None:
        self.answers[call] = list(answers)

    def answer(self, call: str, body: bytes, headers: dict[str, str]) -> Answer:
        self.asked.append((call, json.loads(body) if body else None))
        self.headers.append(headers)
        waiting = self.answers.get(call)
        if not waiting:
            return json_answer({"error": {"message": f"not told about {call}", "type": "x"}}, 404)
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # clients may leave
            super().handle_error(request, client_address)


@contextmanager
def serving() -> Iterator[Server]:
    told = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = told.answer(f"{self.command} {self.path}", body, dict(self.headers))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.type)
            self.send_header("Content-Length", str(len(answer.body) + answer.cut))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = answer.cut

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield told
        finally:
            server.shutdown()
            thread.join()
