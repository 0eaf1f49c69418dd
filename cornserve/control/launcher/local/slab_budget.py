"""Reserves shared memory for the slabs of replicas, which create them when they first publish a tensor."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from cornserve.limits import MIB


class SlabBudget:
    """Grants each replica one slab. Thread-safe.

    Args:
        directory: a directory of the file system that contains the slabs.
        slabs: the directory with the slabs of this home. It need not exist.
    """

    def __init__(self, directory: Path, slabs: Path, slab_mib: int) -> None:
        self._directory = directory
        self._slabs = slabs
        self._slab_mib = slab_mib
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
        created = sum(file.stat().st_blocks * 512 for file in self._slabs.glob("*.slab"))
        free = shutil.disk_usage(self._directory).free // MIB
        reserved = max(0, len(self._holders) * self._slab_mib - created // MIB)
        if self._slab_mib <= free - reserved:
            return ""
        return (
            f"cannot start: it needs {self._slab_mib} MiB of shared memory for tensors, but {self._directory} has "
            f"{free} MiB free, of which {reserved} MiB are reserved for other executors: use a lower "
            "`cornserve up --limit slab-mib=MIB`, or start the container with a larger --shm-size"
        )
