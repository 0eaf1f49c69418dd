"""Detects TCP connections whose other end has vanished: its node or the network failed."""

from __future__ import annotations

import socket
from typing import Final

_OPTIONS: Final = (
    # An idle connection fails after 15 + 3 * 5 seconds without a response.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    # A connection with unacknowledged data fails after this many milliseconds.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


def enable_keepalive(connection: socket.socket) -> None:
    """Makes reads and writes fail once the other end has not responded for 30 seconds. Unix sockets need no setting."""
    if connection.family == socket.AF_UNIX:
        return
    for option in _OPTIONS:
        connection.setsockopt(*option)
