"""Process ids that are never reused.

The operating system reuses pids. A pid, a start time and a boot identify exactly one process.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_TOLERANCE_SECONDS = 1.5
"""The system reports its boot time with a resolution of one second."""


class ProcessId(BaseModel):
    model_config = ConfigDict(frozen=True)

    pid: int
    started: float
    """Start time in seconds since boot. Unlike a date, it does not change when the clock is set."""
    boot: str
    """Identifies the boot and the container in which the pid is valid."""

    @classmethod
    def from_pid(cls, pid: int, **fields: object) -> Self:
        """Returns the id of a running process. `fields` are the fields that a subclass adds."""
        import psutil

        return cls(pid=pid, started=_seconds_after_boot(psutil.Process(pid)), boot=current_boot(), **fields)

    def alive(self) -> bool:
        """Returns whether the process runs. A zombie does not."""
        process = self.find_process()
        return process is not None and not is_zombie(process)

    def find_process(self) -> psutil.Process | None:
        """Returns the process, or None if it has exited, even if another process has its pid now."""
        import psutil

        if self.boot != current_boot():
            return None
        try:
            process = psutil.Process(self.pid)
            same = abs(_seconds_after_boot(process) - self.started) < _TOLERANCE_SECONDS
        except psutil.NoSuchProcess:
            return None
        return process if same else None


def is_zombie(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@cache
def current_boot() -> str:
    """Returns an id of this boot and this container: the start time of process 1 distinguishes containers."""
    import psutil

    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    try:
        return f"{boot}/{round(100 * _seconds_after_boot(psutil.Process(1)))}"
    except psutil.Error:
        return boot


def _seconds_after_boot(process: psutil.Process) -> float:
    import psutil

    return process.create_time() - psutil.boot_time()
