"""The addresses on which the processes of a local instance listen."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from cornserve.control.instance_options import InstanceOptions, InstanceStartError

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
    def choose(cls, options: InstanceOptions) -> Self:
        """Chooses free ports. Raises `InstanceStartError` if the port of the options is in use."""
        own = options.gateways if options.gateways > 1 else 0
        with ExitStack() as listeners:  # All are open at once, so that the ports differ.
            port, *ports = [
                listeners.enter_context(_listen(host, port)).getsockname()[1]
                for host, port in [(options.host, options.port), *[(LOOPBACK, 0)] * (1 + own)]
            ]
        controller, *gateways = [f"{LOOPBACK}:{free}" for free in ports]
        return cls(_url(options.host, port), port, controller, gateways)

    @property
    def gateway_urls(self) -> list[str]:
        """A URL for each gateway."""
        return [f"http://{address}" for address in self.gateways] or [self.url]


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
