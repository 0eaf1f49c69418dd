"""What replicas compete for on one machine: its GPUs, or where there are none, CPU slots in their place.

A spec that asks for GPUs thus runs on a laptop as well: each GPU that it asks for is one CPU slot there.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

VISIBLE = "CUDA_VISIBLE_DEVICES"


class DeviceSlots:
    def __init__(self, kind: Literal["GPU", "CPU slot"], ids: Sequence[str]) -> None:
        self._kind = kind
        self._ids = tuple(ids)
        self._taken: set[str] = set()
        self._released = asyncio.Event()

    @classmethod
    def detect(cls, *, gpus: int | None = None, cpu_slots: int | None = None) -> DeviceSlots:
        """GPUs that this process may use, by default all; without any, CPU slots, by default one per core.

        May take seconds. Tells no more GPUs than there are, however many are asked for.
        """
        devices = [] if gpus == 0 else _visible(_gpus(), os.environ.get(VISIBLE))[:gpus]
        if devices:
            return cls("GPU", devices)
        return cls.cpu((os.cpu_count() or 1) if cpu_slots is None else cpu_slots)

    @classmethod
    def cpu(cls, count: int) -> DeviceSlots:
        return cls("CPU slot", [str(index) for index in range(count)])

    @property
    def _free(self) -> list[str]:
        return [slot for slot in self._ids if slot not in self._taken]

    def take(self, count: int) -> tuple[str, ...] | None:
        """None if so many are not free now."""
        taken = tuple(self._free[:count])
        if len(taken) < count:
            return None
        self._taken.update(taken)
        return taken

    def occupy(self, slots: Iterable[str]) -> None:
        """Takes those that a found replica holds."""
        self._taken.update(slots)

    @contextmanager
    def holding(self, slots: Iterable[str]) -> Iterator[None]:
        """Releases them at the end."""
        try:
            yield
        finally:
            self._taken.difference_update(slots)
            released, self._released = self._released, asyncio.Event()
            released.set()

    async def released(self) -> None:
        """Returns after the next release. Who then finds too few free waits on: the first that fits is served."""
        await self._released.wait()

    def could_fit(self, count: int) -> bool:
        return count <= len(self._ids)

    def need(self, count: int) -> str:
        """What a replica needs beside what there is, for people."""
        plural = "" if count == 1 else "s"
        return f"needs {count} {self._kind}{plural}, {len(self._free)} of {len(self._ids)} free"

    def environment(self, slots: Sequence[str]) -> dict[str, str]:
        """What a replica is told, so that it sees its own GPUs and no others."""
        return {VISIBLE: ",".join(slots) if self._kind == "GPU" else ""}


def _gpus() -> list[str]:
    """The indices of the machine's GPUs."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(index) for index, _ in enumerate(line for line in listing.splitlines() if line.startswith("GPU "))]


def _visible(gpus: list[str], chosen: str | None) -> list[str]:
    """Those that the variable lets a process see. It names indices or UUIDs, and ends at the first that is not one."""
    if chosen is None or not gpus:
        return gpus
    visible = []
    for entry in (entry.strip() for entry in chosen.split(",")):
        if entry not in gpus and not entry.startswith(("GPU-", "MIG-")):
            break
        visible.append(entry)
    return visible
