"""Describes the machine of a measurement."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MachineInfo:
    cpu: str
    cores: int
    system: str
    python: str
    load: float
    """The load average of the last minute before the measurement. Above about 0.5, other processes were running."""

    @classmethod
    def current(cls) -> MachineInfo:
        return cls(
            cpu=_cpu_model(),
            cores=len(os.sched_getaffinity(0)),
            system=f"{platform.system()} {platform.release().partition('-')[0]}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            load=round(os.getloadavg()[0], 2),
        )

    def __str__(self) -> str:
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        return f"{self.cpu}, {cores} · {self.system} · {self.python} · load {self.load:g} before"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()
