"""Notifications of changes to files by any process of the machine, from inotify."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cornserve.libc import LIBC, checked

_MODIFY, _MOVED_TO, _CREATE, _DELETE, _OVERFLOW, _IGNORED = 0x2, 0x80, 0x100, 0x200, 0x4000, 0x8000
_EVENT: Final = struct.Struct("iIII")
"""The watch, the mask, the cookie, and the length of the name that follows (`man 7 inotify`)."""
_READ_BYTES: Final = 65_536


class FileChanges:
    """Calls `notify` when a file changes in the directory whose name begins with the prefix.

    Notifications may be late or missing. For example, writes to memory maps cause none.

    Raises:
        OSError: the directory does not exist, or the user has too many instances of inotify.
    """

    def __init__(self, directory: Path, prefix: str, notify: Callable[[], None]) -> None:
        self._prefix = os.fsencode(prefix)
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._inotify = checked(LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            mask = _MODIFY | _MOVED_TO | _CREATE | _DELETE
            checked(LIBC.inotify_add_watch(self._inotify, os.fsencode(directory), mask))
        except BaseException:
            os.close(self._inotify)
            raise
        self._loop.add_reader(self._inotify, self._read)

    def _read(self) -> None:
        events = _parse(os.read(self._inotify, _READ_BYTES))
        if any(mask & (_OVERFLOW | _IGNORED) or name.startswith(self._prefix) for mask, name in events):
            self._notify()

    def close(self) -> None:
        self._loop.remove_reader(self._inotify)
        os.close(self._inotify)


def _parse(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the mask and the name of each event."""
    offset = 0
    while offset < len(data):
        _, mask, _, length = _EVENT.unpack_from(data, offset)
        offset += _EVENT.size
        yield mask, data[offset : offset + length].rstrip(b"\0")
        offset += length
