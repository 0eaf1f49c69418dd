"""What a measurement was taken on: a number without it means nothing."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    system: str
    python: str
    load: float
    """Load average of the last minute when the measurement began: above about 0.5, others ran meanwhile."""

    @classmethod
    def here(cls) -> Machine:
        return cls(
            cpu=_cpu(),
            cores=len(os.sched_getaffinity(0)),
            system=f"{platform.system()} {platform.release().partition('-')[0]}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            load=round(os.getloadavg()[0], 2),
        )

    def __str__(self) -> str:
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        return f"{self.cpu}, {cores} · {self.system} · {self.python} · load {self.load:g} before"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()
