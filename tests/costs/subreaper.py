"""Runs a worker of pytest-xdist as a child, adopts what its tests leave, and kills it when the worker has ended.

The CPU time of this process and its descendants is therefore that of the worker and everything that its tests start.
Without this process, a daemon or the child of a killed process would become a child of init.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from cornserve.parent_death import signal_on_parent_death
from scripts.process_tree import ProcessTable, adopt_orphans


def main(arguments: list[str]) -> int:
    """Runs Python with the arguments. Returns the exit status of a shell for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C interrupts the worker, which ends by itself.
    adopt_orphans()
    worker = os.fork()
    if worker == 0:
        signal_on_parent_death(signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.execv(sys.executable, [sys.executable, *arguments])
    # The controller detects the end of the worker by the end of its pipes.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    status = None
    while status is None:
        pid, ended = os.wait()
        if pid == worker:
            status = os.waitstatus_to_exitcode(ended)
    _kill_descendants()
    return status if status >= 0 else 128 - status


def _kill_descendants() -> None:
    while orphans := ProcessTable().tree(os.getpid())[1:]:
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.wait()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
