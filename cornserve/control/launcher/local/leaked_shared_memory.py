"""Cleans up the files in /dev/shm that Python's multiprocessing leaves behind when a replica is killed.

The resource tracker of multiprocessing unlinks these files when their process exits, unless the tracker is killed too.
While a replica starts, the launcher therefore records the files that its processes map, and unlinks the remaining ones
after the replica has stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cornserve.atomic_files import write_atomically

SHARED_MEMORY = Path("/dev/shm")
_PATTERNS = ("sem.mp-*", "psm_*")
"""Names that multiprocessing creates. A file with any other name may belong to another replica."""


def files_mapped_by(pids: Iterable[int]) -> set[Path]:
    """Returns the multiprocessing files that the processes map.

    They are compared by inode, because glibc maps a semaphore before it gives the file its name.
    """
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


class SharedMemoryRecord:
    """The recorded file names of one replica. They are kept on disk for later launchers."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, names: set[Path]) -> None:
        recorded = self._read()
        if not names <= recorded:
            write_atomically(self._file, "".join(f"{name}\n" for name in sorted(recorded | names)))

    def unlink_all(self) -> None:
        for name in self._read():
            name.unlink(missing_ok=True)

    def _read(self) -> set[Path]:
        try:
            names = {Path(line) for line in self._file.read_text(errors="replace").splitlines()}
        except FileNotFoundError:
            return set()
        # A damaged file must not lead to other files.
        return {name for name in names if name.parent == SHARED_MEMORY and any(map(name.match, _PATTERNS))}
