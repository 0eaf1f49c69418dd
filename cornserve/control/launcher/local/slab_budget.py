"""Reserves the shared memory that the slabs of replicas take when they are created. They compete for the rest."""

from __future__ import annotations

import math
import shutil
import threading
from pathlib import Path
from typing import Final

from cornserve.limits import MIB

START_MIB: Final = 4
"""The memory of a slab without tensors."""


class SlabBudget:
    """Grants each replica the start of one slab. Thread-safe.

    Args:
        directory: a directory of the file system that contains the slabs.
        slabs: the directory with the slabs of this home. It need not exist.
    """

    def __init__(self, directory: Path, slabs: Path) -> None:
        self._directory = directory
        self._slabs = slabs
        self._holders: set[object] = set()
        self._lock = threading.Lock()

    def grant(self, holder: object) -> None:
        """Reserves a slab without a check, for a replica that runs already."""
        with self._lock:
            self._holders.add(holder)

    def reserve(self, holder: object) -> str:
        """Reserves a slab. Returns why it does not fit, or an empty text if it is reserved."""
        with self._lock:
            if holder not in self._holders:
                if problem := self._find_shortage():
                    return problem
                self._holders.add(holder)
            return ""

    def release(self, holder: object) -> None:
        with self._lock:
            self._holders.discard(holder)

    def _find_shortage(self) -> str:
        created = sum(min(_used_mib(file), START_MIB) for file in self._slabs.glob("*.slab"))
        free = shutil.disk_usage(self._directory).free // MIB
        reserved = max(0, len(self._holders) * START_MIB - created)
        if free - reserved >= START_MIB:
            return ""
        return (
            f"cannot start: it needs {START_MIB} MiB of shared memory for tensors, but {self._directory} has "
            f"{free} MiB free, of which {reserved} MiB are reserved for other executors: free memory there, or start "
            "the container with a larger --shm-size"
        )


def _used_mib(file: Path) -> int:
    """Returns the memory of a slab, rounded up. A slab of an executor that ends may be removed at any time."""
    try:
        return math.ceil(file.stat().st_blocks * 512 / MIB)
    except FileNotFoundError:
        return 0
