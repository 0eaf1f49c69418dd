"""The TCP sockets of this process, also those of libraries."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress


def tcp_sockets() -> Iterator[socket.socket]:
    """Yields duplicates of the sockets, which the caller closes. Lists of the system miss some while others change."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                duplicate = socket.socket(fileno=os.dup(int(name)))
                if duplicate.family in (socket.AF_INET, socket.AF_INET6):
                    yield duplicate
                else:
                    duplicate.close()
