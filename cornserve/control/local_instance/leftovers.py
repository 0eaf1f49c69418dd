"""Ends the processes of an instance whose supervisor was killed.

The gateway and the controller inherit the lock of their home, and exit when their supervisor dies. A process that hangs
does not: it keeps the lock, and the gateway's port. The processes are found by the inode of the lock that they have
open, which another home or another container cannot share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from cornserve.home import Home

GRACE_SECONDS = 5.0
"""Time for the processes to exit by themselves. Stopped processes are killed immediately."""

EXIT_SECONDS = 5.0
"""Time for killed processes to exit."""

POLL_SECONDS = 0.05

_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
_COMMAND = "cornserve.cli"


def end_leftover_processes(home: Home, report: Callable[[str], None]) -> None:
    """Returns when no process of a killed instance holds the home's lock, or when a killed process does not exit.

    Call it when the supervisor does not run. Processes that a `cornserve` command has locked the home for are spared.

    Args:
        report: is called with a message for each process that is killed.
    """
    killed: set[psutil.Process] = set()
    start = time.monotonic()
    while leftovers := _find_leftovers(home):
        waited = time.monotonic() - start
        if waited > GRACE_SECONDS + EXIT_SECONDS:
            return
        for process in leftovers:
            with suppress(psutil.NoSuchProcess):
                is_stopped = process.status() in _STOPPED
                if process not in killed and (is_stopped or waited > GRACE_SECONDS):
                    state = "is stopped" if is_stopped else "does not exit"
                    report(f"killing the {_name(process)} of a killed instance, which {state} (process {process.pid})")
                    process.kill()
                    killed.add(process)
        time.sleep(POLL_SECONDS)


def lock_holders(home: Home) -> list[psutil.Process]:
    """Returns the processes that have the home's lock open, without this process."""
    try:
        lock = home.lock.stat()
    except OSError:
        return []
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _has_open(process, lock)]


def is_command(process: psutil.Process) -> bool:
    """Returns whether the process is a `cornserve` command, such as a supervisor, instead of a process that it runs."""
    try:
        arguments = process.cmdline()
    except psutil.Error:
        return False
    module = arguments[arguments.index("-m") + 1 :][:1] if "-m" in arguments else []
    return not module or not module[0].startswith("cornserve.") or module[0] == _COMMAND


def _find_leftovers(home: Home) -> list[psutil.Process]:
    holders = lock_holders(home)
    return [] if any(map(is_command, holders)) else holders


def _has_open(process: psutil.Process, file: os.stat_result) -> bool:
    return any(os.path.samestat(found, file) for found in _open_files(process))


def _open_files(process: psutil.Process) -> Iterator[os.stat_result]:
    with suppress(OSError):  # The process has exited, or belongs to another user.
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):
                yield descriptor.stat()


def _name(process: psutil.Process) -> str:
    arguments = process.cmdline()
    return "gateway" if "cornserve.gateway" in arguments else "controller"
