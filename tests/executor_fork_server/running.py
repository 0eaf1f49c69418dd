"""Starts the fork server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_until

STAND_IN = Path(__file__).with_name("stand_in")
ROOT = STAND_IN.parents[2]


@contextmanager
def running_fork_server(directory: Path) -> Iterator[dict[str, str]]:
    """Yields variables. Executors and engines are forked for processes with them, and for all that these start."""
    address = directory / "socket"
    command = [sys.executable, "-m", "tests.executor_fork_server.server", str(address)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True) as server:
        wait_until(lambda: address.exists() or server.poll() is not None)
        yield {"EXECUTOR_FORK_SERVER": str(address), "PYTHONPATH": str(STAND_IN)}
        assert server.stdin is not None
        server.stdin.close()  # The server kills the remaining processes and exits.
