"""Locks on steps of a segment, which keep its owner from giving back memory that another process may read.

A reader holds a shared lock on the bytes of each step that it reads. The owner gives back a step only while it has an
exclusive lock on them. The locks belong to the open file, so the system removes them when a reader dies, and they mean
the same in all pods of a node. They are independent of the lock (`flock`) that shows that the owner runs.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_LOCK = struct.Struct("hhqqi0q")
"""`struct flock`: type, origin of the offset, offset, size, process."""


class StepHolds:
    """The steps of a segment that this process holds. Can be used in any thread.

    Args:
        descriptor: the file of the segment. The holds use another open file, because the locks of one do not conflict.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        self._held: set[int] = set()
        self._kept: set[int] = set()
        """Steps that are held until the segment is unmapped."""
        self._lock = Lock()

    def add(self, step: int, position: slice) -> bool:
        """Holds a step. Returns whether it was not held before, or cannot be held because its owner gives it back."""
        with self._lock:
            if step in self._held:
                return False
            if _set_lock(self._descriptor, fcntl.F_RDLCK, position):
                self._held.add(step)
            return True

    def keep(self, step: int, position: slice) -> None:
        """Holds a step until the segment is unmapped. The caller reads it now: its owner cannot give it back."""
        self.add(step, position)
        with self._lock:
            self._kept.add(step)

    def drop(self, step: int, position: slice) -> None:
        with self._lock:
            if step in self._held and step not in self._kept:
                self._held.remove(step)
                _set_lock(self._descriptor, fcntl.F_UNLCK, position)

    def read(self, position: int, number: struct.Struct) -> int:
        """Returns a number in the file, which is 0 where the file has no memory."""
        (found,) = number.unpack(os.pread(self._descriptor, number.size, position))
        return int(found)

    def __del__(self) -> None:
        os.close(self._descriptor)


@contextmanager
def lock_exclusively(descriptor: int, position: slice) -> Iterator[bool]:
    """Yields whether no process holds any of the bytes. None can hold them until the block ends."""
    is_locked = _set_lock(descriptor, fcntl.F_WRLCK, position)
    try:
        yield is_locked
    finally:
        if is_locked:
            _set_lock(descriptor, fcntl.F_UNLCK, position)


def _set_lock(descriptor: int, kind: int, position: slice) -> bool:
    """Returns False if another open file has a lock that conflicts."""
    size = position.stop - position.start
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, position.start, size, 0))
    except BlockingIOError:
        return False
    return True
