"""TCP ports for processes that cannot choose a free port themselves."""

from __future__ import annotations

import secrets
import socket

FIRST, COUNT = 20_000, 10_000
"""Linux takes the ports of connections, and those of servers that ask for any port, from 32768 on."""


def free_port() -> int:
    """Returns a port on which nothing listens. No other program takes it before the caller's process listens."""
    while True:
        port = FIRST + secrets.randbelow(COUNT)
        with socket.socket() as listener:
            try:
                listener.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port
