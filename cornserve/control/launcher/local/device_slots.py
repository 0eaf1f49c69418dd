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
from cornserve.control.launcher.base import SlotCount
from cornserve.control.launcher.local.slot_types import BoundSlot, SlotType, bind_slots

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


class DeviceSlots:
    """The slots of a machine.

    Args:
        bound: the types and cores of slots. Other slots have no type, and their replicas run on all cores.
    """

    def __init__(self, kind: Literal["GPU", "CPU slot"], ids: Sequence[str], bound: Sequence[BoundSlot] = ()) -> None:
        self.kind = kind
        self._ids = tuple(ids)
        self._bound = {slot.id: slot for slot in bound}
        self._allocated: set[str] = set()
        self.releases = Broadcast()
        """Notifies at each release. The first waiting replica whose request fits gets the slots."""

    @classmethod
    def detect(
        cls, *, gpus: int | None = None, cpu_slots: int | None = None, slot_types: Sequence[SlotType] = ()
    ) -> DeviceSlots:
        """Finds the GPUs that this process may use. Without GPUs, there is one CPU slot per core by default.

        May take seconds.

        Args:
            gpus: upper bound of the number of GPUs; 0 selects CPU slots.
            cpu_slots: number of CPU slots.
            slot_types: the types of CPU slots. They replace GPUs and other slots.
        """
        if slot_types:
            bound = bind_slots(slot_types)
            return cls("CPU slot", [slot.id for slot in bound], bound)
        devices = [] if gpus == 0 else visible_gpus()[:gpus]
        if devices:
            return cls("GPU", devices)
        return cls.cpu((os.cpu_count() or 1) if cpu_slots is None else cpu_slots)

    @classmethod
    def cpu(cls, count: int) -> DeviceSlots:
        return cls("CPU slot", [str(index) for index in range(count)])

    @property
    def types(self) -> list[str]:
        """The names of the types, in order."""
        return list(dict.fromkeys(slot.type for slot in self._bound.values()))

    def _of_type(self, slot_type: str | None) -> list[str]:
        return [slot for slot in self._ids if slot_type is None or self._type(slot) == slot_type]

    def _type(self, slot: str) -> str | None:
        return self._bound[slot].type if slot in self._bound else None

    def _free(self, slot_type: str | None) -> list[str]:
        return [slot for slot in self._of_type(slot_type) if slot not in self._allocated]

    def allocate(self, count: int, slot_type: str | None = None) -> tuple[str, ...] | None:
        """Returns None if fewer than `count` slots of the type are free. Without a type, all slots are equal."""
        slots = tuple(self._free(slot_type)[:count])
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

    def could_fit(self, count: int, slot_type: str | None = None) -> bool:
        return count <= len(self._of_type(slot_type))

    def count(self, slot_type: str | None) -> SlotCount:
        """Returns the number of slots of the type. Without a type, of all slots."""
        return SlotCount(self.kind, len(self._of_type(slot_type)), len(self._free(slot_type)))

    def describe_need(self, count: int, slot_type: str | None = None) -> str:
        """Returns a message for users with the type and the needed, free and total number of slots."""
        plural = "" if count == 1 else "s"
        kind = f"{self.kind}{plural}" + (f" of the type {slot_type}" if slot_type else "")
        return f"needs {count} {kind}, {len(self._free(slot_type))} of {len(self._of_type(slot_type))} free"

    def cores(self, slots: Sequence[str]) -> frozenset[int]:
        """Returns the cores on which a replica with these slots runs, or an empty set for all cores."""
        return frozenset(core for slot in slots if slot in self._bound for core in self._bound[slot].cores)

    def environment(self, slots: Sequence[str]) -> dict[str, str]:
        """Returns the environment variables that limit a replica to its own GPUs.

        By default CUDA numbers GPUs by their speed. `nvidia-smi` and vLLM number them by their PCI bus.
        """
        return {VISIBLE_DEVICES: ",".join(slots) if self.kind == "GPU" else "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def visible_gpus() -> list[str]:
    """Returns the GPUs that this process may use. May take seconds."""
    return _visible(_gpus(), os.environ.get(VISIBLE_DEVICES))


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
