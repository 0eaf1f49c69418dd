"""The command line and the environment of this process, as other processes see them in /proc."""

from __future__ import annotations

import ctypes
import importlib
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cornserve.libc import LIBC, checked

_PR_SET_NAME: Final = 15
_PR_SET_MM: Final = 35
_PR_SET_MM_MAP: Final = 14
_MAP: Final = struct.Struct("11QQIi")
"""`prctl_mm_map` of linux/prctl.h: eleven addresses, the auxiliary vector, and a descriptor of the program."""
_ADDRESSES: Final = (26, 27, 45, 46, 47, None, 28)
"""The first seven addresses as fields of /proc/PID/stat, which does not contain the end of the heap."""
_MAX_NAME: Final = 15

_shown: list[ctypes.Array[ctypes.c_char]] = []
"""The memory that /proc shows. The kernel reads it as long as the process runs."""


def show_command(arguments: Sequence[str], variables: Mapping[str, str]) -> None:
    """Replaces the arguments of this process, and adds variables to those with which it was started.

    Call it while the process has one thread. Titles that libraries set with `setproctitle` then replace the arguments,
    also in processes that are forked from this one. The environment of this process does not change.

    Raises `OSError` if the kernel has no `CONFIG_CHECKPOINT_RESTORE`, for example in gVisor.
    """
    command = _join(arguments)
    environment = Path("/proc/self/environ").read_bytes() + _join(f"{key}={value}" for key, value in variables.items())
    shown = ctypes.create_string_buffer(command + environment, len(command) + len(environment))
    start = ctypes.addressof(shown)
    end = start + len(command)
    _, _, numbers = Path("/proc/self/stat").read_text().rpartition(")")
    fields = numbers.split()
    heap_end = LIBC.sbrk
    heap_end.restype = ctypes.c_size_t
    addresses = [heap_end(0) if field is None else int(fields[field - 3]) for field in _ADDRESSES]
    memory_map = _MAP.pack(*addresses, start, end, end, start + len(shown), 0, 0, -1)
    checked(LIBC.prctl(_PR_SET_MM, _PR_SET_MM_MAP, memory_map, ctypes.c_ulong(len(memory_map)), 0))
    _shown.append(shown)
    with suppress(ImportError):
        _replace_setproctitle(shown, len(command))


def _replace_setproctitle(shown: ctypes.Array[ctypes.c_char], size: int) -> None:
    """Lets `setproctitle` write titles to the memory that /proc shows, up to `size` bytes with the last zero byte."""

    library: Any = importlib.import_module("setproctitle")

    def show_title(title: str) -> None:
        encoded = os.fsencode(title)
        ctypes.memmove(shown, encoded[: size - 1].ljust(size, b"\0"), size)
        LIBC.prctl(_PR_SET_NAME, encoded[:_MAX_NAME])

    library.setproctitle = show_title


def _join(parts: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(part) + b"\0" for part in parts)
