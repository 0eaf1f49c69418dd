"""Allocates the machine's GPUs to replicas. A machine without GPUs has CPU slots instead.

A replica that needs GPUs also runs on a machine without any: it gets one CPU slot per GPU.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from cornserve.concurrency import Broadcast

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


class DeviceSlots:
    def __init__(self, kind: Literal["GPU", "CPU slot"], ids: Sequence[str]) -> None:
        self.kind = kind
        self._ids = tuple(ids)
        self._allocated: set[str] = set()
        self.releases = Broadcast()
        """Notifies at each release. The first waiting replica whose request fits gets the slots."""

    @classmethod
    def detect(cls, *, gpus: int | None = None, cpu_slots: int | None = None) -> DeviceSlots:
        """Finds the GPUs that this process may use. Without GPUs, there is one CPU slot per core by default.

        May take seconds.

        Args:
            gpus: upper bound of the number of GPUs; 0 selects CPU slots.
            cpu_slots: number of CPU slots.
        """
        devices = [] if gpus == 0 else _visible(_gpus(), os.environ.get(VISIBLE_DEVICES))[:gpus]
        if devices:
            return cls("GPU", devices)
        return cls.cpu((os.cpu_count() or 1) if cpu_slots is None else cpu_slots)

    @classmethod
    def cpu(cls, count: int) -> DeviceSlots:
        return cls("CPU slot", [str(index) for index in range(count)])

    @property
    def _free(self) -> list[str]:
        return [slot for slot in self._ids if slot not in self._allocated]

    def allocate(self, count: int) -> tuple[str, ...] | None:
        """Returns None if fewer than `count` slots are free."""
        slots = tuple(self._free[:count])
        if len(slots) < count:
            return None
        self._allocated.update(slots)
        return slots

    def mark_allocated(self, slots: Iterable[str]) -> None:
        """Allocates the slots of an adopted replica."""
        self._allocated.update(slots)

    @contextmanager
    def release_after(self, slots: Iterable[str]) -> Iterator[None]:
        """Releases the slots when the block ends."""
        try:
            yield
        finally:
            self._allocated.difference_update(slots)
            self.releases.notify()

    def could_fit(self, count: int) -> bool:
        return count <= len(self._ids)

    def describe_need(self, count: int) -> str:
        """Returns a message for users with the needed, free and total number of slots."""
        plural = "" if count == 1 else "s"
        return f"needs {count} {self.kind}{plural}, {len(self._free)} of {len(self._ids)} free"

    def environment(self, slots: Sequence[str]) -> dict[str, str]:
        """Returns the environment variables that limit a replica to its own GPUs."""
        return {VISIBLE_DEVICES: ",".join(slots) if self.kind == "GPU" else ""}


def _gpus() -> list[str]:
    """Returns the indices of the machine's GPUs."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(index) for index, _ in enumerate(line for line in listing.splitlines() if line.startswith("GPU "))]


def _visible(gpus: list[str], chosen: str | None) -> list[str]:
    """Returns the GPUs that `CUDA_VISIBLE_DEVICES` selects.

    The variable contains indices or UUIDs. CUDA ignores everything after the first invalid entry.
    """
    if chosen is None or not gpus:
        return gpus
    visible = []
    for entry in (entry.strip() for entry in chosen.split(",")):
        if entry not in gpus and not entry.startswith(("GPU-", "MIG-")):
            break
        visible.append(entry)
    return visible
