"""The operating system's limit on open files and sockets."""

from __future__ import annotations

import resource


def raise_file_limit() -> None:
    """Raises this process's soft limit, 1,024 on most systems, to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
