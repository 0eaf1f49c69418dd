"""A reverse proxy that serves an instance below a path prefix, like an Ingress that rewrites the path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

PREFIX = "/ml/corn"


@contextmanager
def prefix_proxy(url: str) -> Iterator[str]:
    """Starts a proxy in front of `url`. Returns the URL with the prefix, below which it forwards requests."""
    target = urlsplit(url).netloc

    class PrefixHandler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            connection = HTTPConnection(target)
            connection.request(self.command, self.path.removeprefix(PREFIX), body, dict(self.headers))
            response = connection.getresponse()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "keep-alive"):
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            try:
                while chunk := response.read1():
                    self.wfile.write(chunk)
                    self.wfile.flush()
            except OSError:  # The browser has closed a stream.
                pass
            finally:
                connection.close()

        do_GET = do_POST = do_PUT = do_DELETE = forward  # noqa: N815

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), PrefixHandler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
