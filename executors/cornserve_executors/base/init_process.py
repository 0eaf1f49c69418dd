"""Runs an executor below the first process of a container.

The kernel makes the first process the parent of all processes that lose theirs, and delivers to it only the signals
that it handles: while an executor imports its engine, SIGTERM would have no effect.
"""

from __future__ import annotations

import os
import signal
from typing import Final

FIRST_PID: Final = 1

_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT)


def leave_first_process() -> None:
    """Returns in a child if this process is the first of its container.

    The first process forwards signals to the child, reaps all processes, and exits with the child's exit status, or
    128 plus the number of the signal that ended the child. Call this function before any thread starts.
    """
    if os.getpid() != FIRST_PID:
        return
    waited = {*_FORWARDED, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)
        return
    while True:
        received = signal.sigwait(waited)
        if received == signal.SIGCHLD:
            _reap(child)
        else:
            os.kill(child, received)


def _reap(child: int) -> None:
    """Reaps all processes that have ended. Exits if `child` is one of them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        if not pid:
            return
