"""Memory that processes share by passing a file descriptor."""

from __future__ import annotations

import fcntl
import os


def create_page(name: str, nbytes: int) -> int:
    """Returns the descriptor of new memory, filled with zeros.

    No process can change its size: a process that cut the file would end the others by SIGBUS.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, nbytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor
