"""What Python's multiprocessing keeps in /dev/shm for a replica, which nobody frees if all its processes are killed.

Its resource tracker unlinks these files when their process is gone, but not when it is killed, too. So while a replica
starts, the launcher notes which of them its processes map, and unlinks what is left of them in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cornserve.atomic_files import write_atomically

SHARED_MEMORY = Path("/dev/shm")
_PATTERNS = ("sem.mp-*", "psm_*")
"""Only names that multiprocessing gives: a file of any other name may be another replica's."""


def mapped_by(pids: Iterable[int]) -> set[Path]:
    """The files that the processes map. They are known by inode: glibc maps a semaphore before it gets its name."""
    inodes = {inode for pid in pids for inode in _mapped_inodes(pid)}
    found: set[Path] = set()
    for file in (file for pattern in _PATTERNS for file in SHARED_MEMORY.glob(pattern)):
        with suppress(FileNotFoundError):
            if file.stat().st_ino in inodes:
                found.add(file)
    return found


def _mapped_inodes(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            _, _, _, _, inode, *path = line.split(maxsplit=5)
            if path and path[0].startswith(f"{SHARED_MEMORY}/"):
                yield int(inode)


class Note:
    """The names that have been seen, on disk, for a launcher that comes later."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, names: set[Path]) -> None:
        noted = self._read()
        if not names <= noted:
            write_atomically(self._file, "".join(f"{name}\n" for name in sorted(noted | names)))

    def unlink_all(self) -> None:
        for name in self._read():
            name.unlink(missing_ok=True)

    def _read(self) -> set[Path]:
        try:
            return {Path(line) for line in self._file.read_text().splitlines()}
        except FileNotFoundError:
            return set()
