"""Measures for how long code of an app runs, without the time for which a busy machine does not run it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from cornserve.app_host.activity import RunningCode


def cpu_wait_seconds(pid: int) -> float:
    """Returns the time for which the process has waited for a CPU, or 0 if the system does not record it."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class RunTimer:
    """Measures the time of one piece of code after the other.

    Args:
        cpu_wait: returns the time for which the host's process has waited for a CPU.
    """

    def __init__(self, cpu_wait: Callable[[], float]) -> None:
        self._cpu_wait = cpu_wait
        self._loop = asyncio.get_running_loop()
        self._code: RunningCode | None = None
        self._start = 0.0

    def seconds(self, code: RunningCode) -> float:
        """Returns the time for which the code has been running since the first call for it. Call it regularly."""
        time = self._loop.time() - self._cpu_wait()
        if code != self._code:
            self._code, self._start = code, time
        return time - self._start
