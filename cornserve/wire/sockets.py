"""TCP connections that notice when the other end is gone without a word: its node died, or the network between."""

from __future__ import annotations

import socket
from typing import Final

_OPTIONS: Final = (
    # Within half a minute: while nothing is sent, …
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    # … and where nobody confirms what was.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


def notice_death(connection: socket.socket) -> None:
    """Reads and writes fail once the other end has not answered for half a minute."""
    for option in _OPTIONS:
        connection.setsockopt(*option)
