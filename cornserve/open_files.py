"""How many files and sockets a process may have."""

from __future__ import annotations

import resource


def allow_many() -> None:
    """By default, most systems let a process have 1,024, but raise that on demand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
