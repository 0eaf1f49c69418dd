"""Serves Prometheus metrics. The port is open, so clients must not be able to delay or fill the process."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

MAX_CONNECTIONS: Final = 16
"""A further connection closes the oldest."""

REQUEST_SECONDS: Final = 5.0
"""Limit for each read from a client and each write to it."""

CONNECTION_INTERVAL_SECONDS: Final = 0.05
"""Limits the time of the process that a flood of requests can use. Other clients wait in the meantime."""


def start_metrics_server(host: str, port: int, registry: CollectorRegistry) -> int:
    """Serves the metrics in daemon threads; returns the port.

    Args:
        port: 0 is any free port.

    Raises:
        OSError: the port is in use.
    """
    server = (_IPv6MetricsServer if ":" in host else _MetricsServer)((host.strip("[]"), port), _QuietHandler)
    server.set_app(make_wsgi_app(registry))
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server.server_port


class _QuietHandler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class _MetricsServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}
        """Connections, the oldest first."""
        self._lock = threading.Lock()
        self._next_at = 0.0
        super().__init__(address, handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        assert isinstance(request, socket.socket)
        time.sleep(max(0.0, self._next_at - time.monotonic()))
        self._next_at = time.monotonic() + CONNECTION_INTERVAL_SECONDS
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        assert isinstance(request, socket.socket)
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect early."""


class _IPv6MetricsServer(_MetricsServer):
    address_family = socket.AF_INET6
