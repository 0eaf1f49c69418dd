"""TCP sockets: addresses, and options that detect a connection whose other end has vanished."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any, Final

from cornserve.wire.credentials import TlsFiles

_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # An idle connection fails after 15 + 3 * 5 seconds without a response.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    # A connection with unacknowledged data fails after this many milliseconds.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)

_MAX_PORT: Final = 65_535


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Returns host and port. Raises `ValueError` if the endpoint is not `HOST:PORT`."""
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) <= _MAX_PORT):
        raise ValueError(f"{endpoint[:200]!r} is not an endpoint: give HOST:PORT with a port up to {_MAX_PORT}")
    return host.strip("[]"), int(port)


def configure(connection: socket.socket) -> None:
    """Sends data without delay, and makes reads and writes fail once the other end has not responded for 30 seconds."""
    for option in _OPTIONS:
        connection.setsockopt(*option)


async def attach(connection: socket.socket, protocol: asyncio.BaseProtocol, tls: TlsFiles | None) -> None:
    """Passes the connection, which this process has made, to a protocol. Raises `OSError` if TLS fails."""
    context, name = (None, None) if tls is None else (tls.contexts().connecting, "")
    await asyncio.get_running_loop().create_connection(
        lambda: protocol, sock=connection, ssl=context, server_hostname=name
    )


async def attach_accepted(
    connection: socket.socket, create: Callable[[], asyncio.BaseProtocol], tls: TlsFiles | None
) -> None:
    """Passes an accepted connection to a new protocol. Raises `OSError` if TLS fails."""
    context = None if tls is None else tls.contexts().accepting
    await asyncio.get_running_loop().connect_accepted_socket(lambda: _HandOver(create), connection, ssl=context)


class _HandOver(asyncio.Protocol):
    """Creates the protocol of an accepted connection once TLS, if any, is established."""

    def __init__(self, create: Callable[[], asyncio.BaseProtocol]) -> None:
        self._create = create

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._create()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


async def connect(endpoint: str) -> socket.socket:
    """Raises `OSError` if nothing accepts connections at the endpoint."""
    loop = asyncio.get_running_loop()
    host, port = split_endpoint(endpoint)
    family, kind, protocol, _, resolved = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        configure(connection)
        await loop.sock_connect(connection, resolved)
    except BaseException:
        connection.close()
        raise
    return connection


def local_address(connection: socket.socket) -> str:
    """Returns `IP:PORT` of this end."""
    return _format(connection.getsockname())


def remote_address(connection: socket.socket) -> str:
    """Returns `IP:PORT` of the other end."""
    return _format(connection.getpeername())


def _format(name: tuple[Any, ...]) -> str:
    """Returns the same text at both ends, even if one of them uses IPv6 for an IPv4 address."""
    address = ipaddress.ip_address(name[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return f"{address}:{name[1]}"
