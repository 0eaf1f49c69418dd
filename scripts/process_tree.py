"""CPU time and memory of a process and its descendants, read from /proc. Uses the standard library only."""

from __future__ import annotations

import ctypes
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    cpu_seconds: float
    """User and system time of the process, and of its descendants that have ended and been reaped."""
    resident: int
    """Resident memory in bytes. Counts shared pages in each process."""


@dataclass(frozen=True)
class Memory:
    """Memory in bytes as PSS: pages that processes share are divided among them."""

    total: int
    files: int
    """The part that is mapped from files outside /dev/shm, which the kernel can drop when memory is short."""


class ProcessTable:
    """The processes of the machine at one moment."""

    def __init__(self) -> None:
        self._processes = {process.pid: process for process in _processes()}
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        for process in self._processes.values():
            self._children[process.parent].append(process.pid)

    def tree(self, root: int) -> list[int]:
        """Returns the process and its descendants, or nothing if the process has ended."""
        found = [root] if root in self._processes else []
        for pid in found:
            found += self._children[pid]
        return found

    def cpu_seconds(self, root: int) -> float:
        """Returns the CPU time of a process and of all its descendants, also of those that have ended.

        Includes descendants whose parent has ended if `root` has called `adopt_orphans`.
        """
        return sum(self._processes[pid].cpu_seconds for pid in self.tree(root))

    def resident(self, root: int) -> int:
        return sum(self._processes[pid].resident for pid in self.tree(root))

    def memory(self, root: int) -> Memory:
        """Takes 50 ms of CPU time for each GiB."""
        parts = [_memory(pid) for pid in self.tree(root)]
        return Memory(sum(part.total for part in parts), sum(part.files for part in parts))


class MemoryPeak:
    """The highest memory of a process tree in a series of samples.

    It may be too low by the pages that processes have shared and then written to, which do not change the resident
    memory.
    """

    _GROWTH: Final = 1.05

    def __init__(self) -> None:
        self.memory = Memory(0, 0)
        self._resident = 0

    def sample(self, table: ProcessTable, root: int) -> None:
        """Measures the PSS only if the resident memory has grown by 5 %, because reading the PSS is slow."""
        resident = table.resident(root)
        if resident > self._GROWTH * self._resident:
            self._resident = resident
            self.memory = max(self.memory, table.memory(root), key=lambda memory: memory.total)


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose parent ends. It must reap them."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program, in parentheses, can contain spaces and parentheses.
                fields = file.read().rpartition(b")")[2].split()
                cpu_seconds = sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
                yield Process(int(name), int(fields[1]), cpu_seconds, int(fields[21]) * _PAGE)


def _memory(pid: int) -> Memory:
    """Returns zeros for a process that ends, and for one of another user."""
    sizes = {}
    with (
        suppress(FileNotFoundError, ProcessLookupError, PermissionError),
        open(f"/proc/{pid}/smaps_rollup", "rb") as file,
    ):
        for line in file:
            name, _, size = line.partition(b":")
            if name in (b"Pss", b"Pss_File"):
                sizes[name] = int(size.split()[0]) * _KIB
    return Memory(sizes.get(b"Pss", 0), sizes.get(b"Pss_File", 0))
