"""The addresses on which the processes of a local instance listen."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

from cornserve.control.local_instance.options import InstanceOptions, InstanceStartError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class InstanceAddresses:
    url: str
    """The URL of the gateways for clients on this machine."""
    port: int
    controller_metrics: str
    """The `host:port` of the controller's metrics."""
    gateways: list[str]
    """If several gateways share the port: a `host:port` for each of them, on which no other gateway listens."""

    @classmethod
    @contextmanager
    def chosen(cls, options: InstanceOptions) -> Iterator[Self]:
        """Chooses free ports, and reserves those of the gateways' own addresses until the block ends.

        Raises `InstanceStartError` if the port of the options is in use.
        """
        own = options.gateways if options.gateways > 1 else 0
        with ExitStack() as reserved:
            with _listen(options.host, options.port) as common, _listen(LOOPBACK, 0) as metrics:
                gateways = [f"{LOOPBACK}:{_port(reserved.enter_context(_reserve()))}" for _ in range(own)]
                port, controller = _port(common), f"{LOOPBACK}:{_port(metrics)}"
            yield cls(_url(options.host, port), port, controller, gateways)

    @property
    def gateway_urls(self) -> list[str]:
        """A URL for each gateway."""
        return [f"http://{address}" for address in self.gateways] or [self.url]


def _reserve() -> socket.socket:
    """Reserves a free port, also while a gateway restarts: only processes of this user that share it can listen."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((LOOPBACK, 0))
    return reserved


def _port(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port


def _listen(host: str, port: int) -> socket.socket:
    """Listens on the port. Checking it first reports a port in use before any process starts."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InstanceStartError(
                f"port {port} of {host} is in use: choose another with --port or CORNSERVE_PORT"
            ) from error
        raise InstanceStartError(
            f"cannot listen on {host}, port {port}: {error.strerror}: choose others with --host and --port"
        ) from error


def _url(host: str, port: int) -> str:
    """Returns the URL for clients on this machine."""
    reachable = {"0.0.0.0": LOOPBACK, "": LOOPBACK, "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
