"""A filter for system calls (seccomp): calls that would affect other processes fail with EPERM."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cornserve.app_host.landlock import SIGNALS_VERSION, TRUNCATE_VERSION
from cornserve.libc import LIBC, checked

_PR_GET_SECCOMP, _PR_SET_SECCOMP, _MODE_FILTER = 21, 22, 2

_AUDIT_ARCH_X86_64: Final = 0xC000003E
_X32_CALLS: Final = 0x40000000
"""System calls of the x32 ABI have numbers from here on."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
"""The instructions of the filter's program."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in the description of a call. Only the low half of an argument is compared: the arguments are `int`s."""

_ALLOWED: Final = 0x7FFF0000
_REFUSED: Final = 0x00050000 | errno.EPERM

_SOCKET, _KILL, _SETPRIORITY, _SCHED_SETPARAM, _SCHED_SETSCHEDULER = 41, 62, 141, 142, 144
_SCHED_SETAFFINITY, _IOPRIO_SET, _PRLIMIT64, _SCHED_SETATTR, _IO_URING_SETUP = 203, 251, 302, 314, 425
_RT_SIGQUEUEINFO, _TKILL, _TGKILL, _RT_TGSIGQUEUEINFO, _PIDFD_SEND_SIGNAL = 129, 200, 234, 297, 424
_IOCTL, _FCNTL, _TRUNCATE = 16, 72, 76
_CHANGE_ATTRIBUTES: Final = (90, 92, 94, 188, 189, 197, 198, 260, 268, 452, 463, 466)
"""`chmod`, `chown`, `setxattr`, `removexattr` and their variants with a path, which Landlock does not restrict."""
_SET_OWNER_BY_IOCTL, _SET_OWNER_BY_FCNTL = (0x8901, 0x8902), (8, 15)
"""Commands that have the system signal a process when a file is ready."""
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1


class _Check(NamedTuple):
    """A condition of a call: the argument has one of the values or, if these are refused, another one."""

    position: int
    """The position of the argument."""
    values: Sequence[int]
    refuses_values: bool = False


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filters_syscalls() -> bool:
    """Returns whether this machine can filter system calls."""
    return platform.machine() == "x86_64" and LIBC.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def filter_syscalls(landlock: int) -> None:
    """Filters the calls of this thread, and of all that it starts.

    They cannot change the limits and priorities of other processes, nor the modes of files that are not open, and
    cannot connect to Unix sockets, through which other programs run commands. The filter also refuses signals to other
    processes, and cutting files that are not open, if Landlock does not. The process needs `PR_SET_NO_NEW_PRIVS`, or a
    privilege.

    Args:
        landlock: the version of Landlock, or 0.
    """
    pid = os.getpid()
    own = _Check(0, (0, pid))
    never = _Check(0, ())
    conditions: dict[int, Sequence[_Check]] = {
        _SOCKET: [_Check(0, (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK))],
        _IO_URING_SETUP: [never],  # It opens sockets without a system call.
        **{call: [never] for call in _CHANGE_ATTRIBUTES},
        _SETPRIORITY: [_Check(0, (_PRIO_PROCESS,)), _Check(1, (0, pid))],
        _IOPRIO_SET: [_Check(0, (_IOPRIO_WHO_PROCESS,)), _Check(1, (0, pid))],
    }
    calls = [_PRLIMIT64, _SCHED_SETPARAM, _SCHED_SETSCHEDULER, _SCHED_SETAFFINITY, _SCHED_SETATTR]
    if landlock < TRUNCATE_VERSION:
        conditions[_TRUNCATE] = [never]
    if landlock < SIGNALS_VERSION:
        conditions[_KILL] = [_Check(0, (0, pid, -pid & 0xFFFFFFFF))]
        conditions[_PIDFD_SEND_SIGNAL] = [never]
        conditions[_IOCTL] = [_Check(1, _SET_OWNER_BY_IOCTL, refuses_values=True)]
        conditions[_FCNTL] = [_Check(1, _SET_OWNER_BY_FCNTL, refuses_values=True)]
        calls += [_TKILL, _TGKILL, _RT_SIGQUEUEINFO, _RT_TGSIGQUEUEINFO]
    conditions |= {call: [own] for call in calls}
    program = _program(conditions)
    given = _Program(len(program) // 8, program)
    checked(LIBC.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(given), 0, 0))


def _program(conditions: Mapping[int, Sequence[_Check]]) -> bytes:
    """Returns the instructions: calls without conditions, and those that meet all of theirs, are allowed."""
    program = _instruction(_LOAD, _ARCHITECTURE)
    program += _instruction(_EQUAL, _AUDIT_ARCH_X86_64, if_true=1) + _instruction(_RETURN, _REFUSED)
    program += _instruction(_LOAD, _NUMBER)
    program += _instruction(_AT_LEAST, _X32_CALLS, if_false=1) + _instruction(_RETURN, _REFUSED)
    for call, checks in conditions.items():
        steps = b"".join(map(_steps, checks)) + _instruction(_RETURN, _ALLOWED)
        program += _instruction(_EQUAL, call, if_false=len(steps) // 8) + steps
    return program + _instruction(_RETURN, _ALLOWED)


def _steps(check: _Check) -> bytes:
    """Returns the instructions that refuse the call if it does not meet the condition."""
    steps = _instruction(_LOAD, _ARGUMENTS + 8 * check.position)
    last = len(check.values) - 1
    for index, value in enumerate(check.values):
        if check.refuses_values:
            steps += _instruction(_EQUAL, value, if_true=last - index, if_false=1 if index == last else 0)
        else:
            steps += _instruction(_EQUAL, value, if_true=last - index + 1)
    return steps + _instruction(_RETURN, _REFUSED)


def _instruction(code: int, operand: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
