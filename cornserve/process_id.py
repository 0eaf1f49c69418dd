"""What names a process for ever.

A pid alone names nobody, because pids are used again; a pid and a start time name one process of one boot.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_TOLERANCE = 1.5
"""Seconds. The boot's date is known to the second."""


class ProcessId(BaseModel):
    model_config = ConfigDict(frozen=True)

    pid: int
    started: float
    """Seconds from the boot to its start: unlike a date, the same after the clock has been set."""
    world: str
    """Within which boot (and container) the pid means something."""

    @classmethod
    def of(cls, pid: int, **further: str) -> Self:
        """Of a process that runs, with the fields that a subclass adds."""
        import psutil

        return cls(pid=pid, started=_seconds_after_boot(psutil.Process(pid)), world=current_world(), **further)

    def alive(self) -> bool:
        """Zombies have ended."""
        process = self.find()
        return process is not None and not is_zombie(process)

    def find(self) -> psutil.Process | None:
        """The process, or None if it is gone or its pid is another's."""
        import psutil

        if self.world != current_world():
            return None
        try:
            process = psutil.Process(self.pid)
            same = abs(_seconds_after_boot(process) - self.started) < _TOLERANCE
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
def current_world() -> str:
    import psutil

    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    try:
        return f"{boot}/{round(100 * _seconds_after_boot(psutil.Process(1)))}"
    except psutil.Error:
        return boot


def _seconds_after_boot(process: psutil.Process) -> float:
    import psutil

    return process.create_time() - psutil.boot_time()
