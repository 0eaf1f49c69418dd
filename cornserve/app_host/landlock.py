"""Landlock: a process gives up access to files and to other processes, for itself and for all that it starts.

It needs no privileges: landlock(7).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path
from typing import Final

from cornserve.libc import LIBC, checked

TRUNCATE_VERSION: Final = 3
"""The first version that also restricts cutting files: Linux 6.2."""

SIGNALS_VERSION: Final = 6
"""The first version that also restricts signals to other processes: Linux 6.12."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The numbers of the system calls, which are the same on all architectures."""

_GET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS: Final = 0b11


class FileAccess(IntFlag):
    """Ways to use files and directories, as the kernel numbers them."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    CHANGE_DIR = 0b1_1111_1111 << 4
    """To create, link, rename and remove files and directories of all kinds in a directory."""
    REFER = 1 << 13
    TRUNCATE = 1 << 14

    READ = EXECUTE | READ_FILE | READ_DIR
    FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
    """The ways to use a path that is not a directory."""
    ALL = READ | WRITE_FILE | CHANGE_DIR | REFER | TRUNCATE


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def landlock_version() -> int:
    """Returns the version of Landlock in the kernel, or 0 if it is missing or switched off."""
    version: int = LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _GET_VERSION)
    return max(version, 0)


def restrict(allowed: Mapping[Path, FileAccess], version: int) -> None:
    """Takes access to all files from this thread, except for those at and below the allowed paths.

    It can no longer read the memory and the environment of processes without this restriction. From
    `SIGNALS_VERSION` on, it can also not signal them, nor connect to their abstract Unix sockets. The process needs
    `PR_SET_NO_NEW_PRIVS`, or a privilege. Paths that do not exist are left out.
    """
    known = _known_access(version)
    scoped = _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if version >= SIGNALS_VERSION else 0
    attributes = _Ruleset(known, 0, scoped)
    # An older kernel refuses the fields that it does not know.
    size = ctypes.sizeof(attributes) if version >= SIGNALS_VERSION else ctypes.sizeof(ctypes.c_uint64)
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0)
    try:
        for path, access in allowed.items():
            _allow(ruleset, path, access & known)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _known_access(version: int) -> FileAccess:
    known = FileAccess.ALL
    if version < 2:
        known &= ~FileAccess.REFER
    if version < TRUNCATE_VERSION:
        known &= ~FileAccess.TRUNCATE
    return known


def _allow(ruleset: int, path: Path, access: FileAccess) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # It does not exist, or is not for this user.
        return
    try:
        if not path.is_dir():
            access &= FileAccess.FILE
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(_PathBeneath(access, descriptor)), 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    return checked(LIBC.syscall(number, *arguments))
